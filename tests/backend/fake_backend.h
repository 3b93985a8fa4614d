// A device that computes nothing and counts what it is asked for.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "fourfold/moe.h"
#include "support/host_backend.h"

namespace fourfold {

class FakePacked final : public PackedExperts {
 public:
  explicit FakePacked(const Caps& caps, std::uint64_t bytes = 12345) : PackedExperts(caps), bytes_(bytes) {}
  std::uint64_t bytes() const noexcept override { return bytes_; }

 private:
  std::uint64_t bytes_;
};

struct FakeCounts {
  int allocated = 0, released = 0, packed = 0, warmed = 0, resolved = 0, frozen = 0, ran = 0;
  std::uint64_t live_bytes = 0;
  std::vector<std::int64_t> experts_asked;
  const BoundMoe* last_bound = nullptr;
};

class FakeBackend final : public support::HostBackend {
 public:
  explicit FakeBackend(FakeCounts& counts, Device device = device_preset("cpu"))
      : HostBackend(device), counts_(counts) {}
  std::byte* allocate(std::uint64_t bytes) override {
    ++counts_.allocated;
    counts_.live_bytes += bytes;
    return HostBackend::allocate(bytes);
  }
  void release(std::byte* data, std::uint64_t bytes) noexcept override {
    ++counts_.released;
    counts_.live_bytes -= bytes;
    HostBackend::release(data, bytes);
  }
  std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) override {
    ++counts_.packed;
    for (std::int64_t index = 0; index < plan.caps().experts; ++index) {
      source.expert(index);
      counts_.experts_asked.push_back(index);
    }
    return std::make_shared<FakePacked>(plan.caps());
  }
  void warm_up(const Plan&) override { ++counts_.warmed; }
  void resolve(BoundMoe&) override { ++counts_.resolved; }
  void freeze() noexcept override { ++counts_.frozen; }
  void run_moe(const BoundMoe& bound) override {
    ++counts_.ran;
    counts_.last_bound = &bound;
  }
  Probes probe() override { return {1, 2, 3}; }

 private:
  FakeCounts& counts_;
};

/// What `call` throws, as code and text; ErrorCode{} when it does not throw.
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode{}, "no error");
}

}  // namespace fourfold
