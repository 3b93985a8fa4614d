// safetensors files written front to back.
#include "model/checkpoint_writer.h"

#include <nlohmann/json.hpp>

#include "core/check.h"

namespace fourfold {

std::uint64_t PlannedTensor::bytes() const noexcept {
  std::uint64_t bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  for (std::int64_t extent : shape) bits *= static_cast<std::uint64_t>(extent);
  return bits / 8;
}

ShardWriter::ShardWriter(const std::string& path, std::vector<PlannedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const PlannedTensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = header.dump();
  // Readers that view the data as typed arrays want it aligned.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  file_ = OutputFile::create(path);
  file_.write(length, sizeof length);
  file_.write(text.data(), text.size());
  remaining_ = at;
}

void ShardWriter::append(std::span<const std::byte> bytes) {
  check(bytes.size() <= remaining_, ErrorCode::internal, "safetensors writer: {} bytes came where {} were planned",
        bytes.size(), remaining_);
  file_.write(bytes);
  remaining_ -= bytes.size();
}

void ShardWriter::close() {
  check(remaining_ == 0, ErrorCode::internal, "safetensors writer: {} planned bytes never came", remaining_);
  file_.close();
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  return shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

std::vector<std::size_t> split_into_shards(std::span<const std::uint64_t> item_bytes, std::uint64_t max_bytes) {
  std::vector<std::size_t> firsts;
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < item_bytes.size(); ++i) {
    if (firsts.empty() || item_bytes[i] > max_bytes || filled > max_bytes - item_bytes[i]) {
      firsts.push_back(i);
      filled = 0;
    }
    filled += item_bytes[i];
  }
  return firsts;
}

}  // namespace fourfold
