// A GPU backend on the stand-in driver: kernels from a pretending compiler and a cache folder of the test's own, layers
// ready to bind, and what the driver saw of each step.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "cuda/cuda_backend.h"
#include "cuda/jit/embedded_sources.h"
#include "fourfold/moe.h"
#include "fourfold/verify.h"
#include "jit/jit_fixture.h"
#include "kernels/params/moe_params.h"
#include "kernels/params/tile_params.h"
#include "moe/random_call.h"
#include "stand_in_driver.h"
#include "support/moe_layer.h"

namespace fourfold::cuda {

/// Compiles to images of the stand-in driver that have the entry and record its argument.
class StandInCompiler : public PretendingCompiler {
 public:
  std::string attributes;        // of every function, as stand_in_image has them
  std::atomic<bool> bad{false};  // images that no device takes

  Image compile(const KernelSpec& spec, const std::string& architecture) override {
    PretendingCompiler::compile(spec, architecture);
    if (bad) return image_of("neither text nor ELF");
    return stand_in_image(spec.entry(), "params=" + std::to_string(params_bytes(spec.entry())) + " " + attributes);
  }

 private:
  static std::size_t params_bytes(const std::string& entry) {
    if (entry == "route_resolve") return sizeof(kernels::RouteResolveParams);
    if (entry == "route_sort") return sizeof(kernels::RouteSortParams);
    if (entry == "route_tiles") return sizeof(kernels::RouteTilesParams);
    if (entry == "gate_up_tiles") return sizeof(kernels::GateUpTilesParams);
    if (entry == "down_sums" || entry == "down_rows") return sizeof(kernels::DownTilesParams);
    if (entry == "combine_rows") return sizeof(kernels::CombineRowsParams);
    return entry == "gate_up_naive" ? sizeof(kernels::GateUpParams) : sizeof(kernels::DownParams);
  }
};

/// A plan, weights, workspace and one call's tensors in memory of a backend. Random experts and tokens.
class DeviceLayer {
 public:
  DeviceLayer(const Caps& caps, Backend& backend)
      : plan(fourfold::plan(caps, backend.device())), backend_(backend), experts_(caps, 1) {
    const auto source = stacked_source(experts_.stacked(), caps);
    weights = prepare_weights(plan, backend, *source);
    workspace.push_back(Workspace::allocate(plan, backend));
    const RandomCall call = random_call(caps, caps.max_tokens, 2);
    tensors.weights = &weights;
    tensors.x = on_device(call.tensors.x);
    tensors.topk_ids = on_device(call.tensors.topk_ids);
    tensors.topk_weights = on_device(call.tensors.topk_weights);
    tensors.expert_map = on_device(call.tensors.expert_map);
    memory_.push_back(Workspace::allocate(static_cast<std::uint64_t>(call.tensors.x.bytes()), backend));
    tensors.out = TensorView(memory_.back().span().data(), caps.activation_dtype, {caps.max_tokens, caps.hidden});
  }

  /// Binds the first `tokens` tokens.
  Binding bind(std::int64_t tokens, fourfold::Stream stream) const {
    MoeTensors part = support::rows_of(tensors, 0, tokens);
    part.out.shape[0] = tokens;
    return fourfold::bind(plan, backend_, part, workspace.front().span(), stream);
  }
  Binding bind(fourfold::Stream stream) const { return bind(plan.caps().max_tokens, stream); }

  Plan plan;
  ExpertWeights weights;
  std::vector<Workspace> workspace;  // one
  MoeTensors tensors;

 private:
  ConstTensorView on_device(ConstTensorView view) {
    if (view.absent()) return view;
    const auto bytes = static_cast<std::size_t>(view.bytes());
    memory_.push_back(Workspace::allocate(bytes, backend_));
    copy_to_device(backend_, memory_.back().span(), {static_cast<const std::byte*>(view.data), bytes});
    view.data = memory_.back().span().data();
    return view;
  }

  Backend& backend_;
  RandomExperts experts_;
  std::vector<Workspace> memory_;
};

class CudaBackendTest : public StandInTest {
 protected:
  ImageStoreOptions options() {
    ImageStoreOptions options;
    options.sources = &SourceTree::embedded();
    options.compiler = compiler_;
    options.pack_folders = {folder_ / "packs"};
    options.disk = {cache_folder(), 1ull << 30, true, reports_.sink()};
    options.report = reports_.sink();
    return options;
  }
  std::shared_ptr<Backend> make_backend(int ordinal = 0) {
    return std::make_shared<Backend>(make_cuda_interface(driver_, ordinal, options(), false, naive_kernels_));
  }
  /// Fills the cache folder with the kernels of `caps`, by a backend that is gone on return.
  void warm_the_disk(const Caps& caps) {
    const auto backend = make_backend();
    warm_up(fourfold::plan(caps, backend->device()), *backend);
    compiler_->compiles = 0;
  }
  fs::path cache_folder() const { return folder_ / "cache"; }
  /// Every file below the cache folder with the times of its last read and write: equal when nobody touched it.
  std::vector<std::string> cache_state() const {
    std::vector<std::string> files;
    if (!fs::exists(cache_folder())) return files;
    for (const auto& item : fs::recursive_directory_iterator(cache_folder())) {
      struct stat status {};
      ::stat(item.path().c_str(), &status);
      files.push_back(fmt::format("{} {} {}.{:09} {}.{:09}", item.path().string(), status.st_size,
                                  status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                                  status.st_ctim.tv_nsec));
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  /// Names of the driver's calls from number `begin` on, in order.
  std::vector<std::string> names_since(std::uint64_t begin) const {
    std::vector<std::string> names;
    for (const StandInCall& call : control_.calls(begin)) names.emplace_back(call.name);
    return names;
  }
  CUstream handle(fourfold::Stream stream) const { return static_cast<CUstream>(stream.handle); }

  bool naive_kernels_ = true;  // four launches whatever the problem: what most tests here are about
  TemporaryFolder folder_;
  Reports reports_;
  std::shared_ptr<StandInCompiler> compiler_ = std::make_shared<StandInCompiler>();
  const Caps caps_ = support::caps_of("t6 k2 e4 h64 i32 nvfp4 bf16 silu");
  const std::vector<std::string> four_launches_{4, "cuLaunchKernel"};
};

}  // namespace fourfold::cuda
