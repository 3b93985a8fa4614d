// Seeded random experts of any format, fast enough for gigabytes; magnitudes keep activations and outputs near 1.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/float16.h"
#include "fourfold/verify.h"

namespace fourfold {
namespace {

/// splitmix64 (Steele, Lea, Flood, 2014): any counter value is a good start, so blocks are filled in any order.
struct SplitMix {
  std::uint64_t state = 0;
  std::uint64_t next() noexcept {
    std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

// Root mean squares over all 16 codes: e2m1, code - 8, and code - zero with both uniform.
constexpr double kRmsE2m1 = 2.926, kRmsInt4 = 4.637, kRmsInt4Zeros = 6.519;
constexpr int kNvfp4ScaleFirst = 56, kNvfp4ScaleCount = 33;  // E4M3 1.0 .. 16.0
constexpr double kRmsNvfp4Scale = 6.8;                       // of those bytes, taken uniformly
constexpr std::int64_t kBlockBytes = 1 << 16;

}  // namespace

struct RandomExperts::Storage {
  using Bytes = std::unique_ptr<std::byte[]>;  // uninitialised, so that the filling threads touch the pages first

  StackedExperts stacked;
  std::vector<Bytes> blocks;
  std::uint64_t seed = 0, tensor_count = 0;

  ConstTensorView own(DType dtype, std::initializer_list<std::int64_t> shape, std::byte** data) {
    ConstTensorView view(nullptr, dtype, shape);
    std::int64_t bytes = dtype_bits(dtype) / 8;
    for (std::int64_t extent : shape) bytes = checked_mul(bytes, extent, "random experts");
    blocks.emplace_back(new std::byte[std::max<std::int64_t>(bytes, 1)]);
    view.data = *data = blocks.back().get();
    return view;
  }

  /// Fills `bytes` bytes block by block; `fill(generator, begin, size)` writes one block. Thread count is immaterial.
  template <class Fill>
  void in_blocks(std::byte* data, std::int64_t bytes, const Fill& fill) {
    const std::uint64_t tensor_seed = SplitMix{seed * 0x9e3779b97f4a7c15ull + ++tensor_count}.next();
    const std::int64_t count = ceil_div(bytes, kBlockBytes);
#pragma omp parallel for schedule(static)
    for (std::int64_t block = 0; block < count; ++block) {
      SplitMix generator{tensor_seed ^ (static_cast<std::uint64_t>(block) * 0xd1342543de82ef95ull)};
      const std::int64_t begin = block * kBlockBytes;
      fill(generator, data + begin, std::min(kBlockBytes, bytes - begin));
    }
  }

  ConstTensorView random_bytes(DType dtype, std::initializer_list<std::int64_t> shape, int first, int count) {
    std::byte* data = nullptr;
    const ConstTensorView view = own(dtype, shape, &data);
    in_blocks(data, view.bytes(), [first, count](SplitMix& generator, std::byte* to, std::int64_t size) {
      for (std::int64_t i = 0; i < size; i += 8) {
        std::uint64_t word = generator.next();
        if (count != 256) {  // each byte b becomes first + b * count / 256
          std::uint64_t mapped = 0;
          for (int byte = 0; byte < 8; ++byte)
            mapped |= static_cast<std::uint64_t>(first + (((word >> (8 * byte)) & 255) * count >> 8)) << (8 * byte);
          word = mapped;
        }
        std::memcpy(to + i, &word, std::min<std::int64_t>(8, size - i));
      }
    });
    return view;
  }

  /// bf16 values uniform in [low, high].
  ConstTensorView random_bf16(std::initializer_list<std::int64_t> shape, double low, double high) {
    std::byte* data = nullptr;
    const ConstTensorView view = own(DType::bf16, shape, &data);
    in_blocks(data, view.bytes(), [low, high](SplitMix& generator, std::byte* to, std::int64_t size) {
      for (std::int64_t i = 0; i < size; i += 2) {
        const std::uint16_t bits = float_to_bf16(static_cast<float>(low + (high - low) * generator.uniform()));
        std::memcpy(to + i, &bits, 2);
      }
    });
    return view;
  }

  ConstTensorView random_f32(std::initializer_list<std::int64_t> shape, double low, double high) {
    std::byte* data = nullptr;
    const ConstTensorView view = own(DType::f32, shape, &data);
    in_blocks(data, view.bytes(), [low, high](SplitMix& generator, std::byte* to, std::int64_t size) {
      for (std::int64_t i = 0; i < size; i += 4) {
        const float value = static_cast<float>(low + (high - low) * generator.uniform());
        std::memcpy(to + i, &value, 4);
      }
    });
    return view;
  }

  /// Scales of a matrix [E, rows, k] whose weights shall have a root mean square near `rms`.
  ConstTensorView scales(const Caps& caps, std::int64_t rows, std::int64_t k, double rms) {
    const std::int64_t groups = groups_per_row(caps.format, k);
    switch (caps.format.format) {
      case WeightFormat::nvfp4:
        return random_bytes(DType::f8_e4m3, {caps.experts, rows, groups}, kNvfp4ScaleFirst, kNvfp4ScaleCount);
      case WeightFormat::mxfp4: {
        const int middle = 127 + static_cast<int>(std::lround(std::log2(rms / kRmsE2m1)));
        return random_bytes(DType::u8, {caps.experts, rows, groups}, std::max(1, middle - 2), 4);
      }
      case WeightFormat::int4:
      case WeightFormat::exl3:  // refused when planning
        break;
    }
    const double middle = rms / (caps.format.zero_points ? kRmsInt4Zeros : kRmsInt4);
    return random_bf16({caps.experts, rows, groups}, 0.5 * middle, 1.5 * middle);
  }

  ConstTensorView zeros(const Caps& caps, std::int64_t rows, std::int64_t k) {
    if (!caps.format.zero_points) return {};
    return random_bytes(DType::u8, {caps.experts, rows, groups_per_row(caps.format, k)}, 0, 16);
  }
};

RandomExperts::RandomExperts(const Caps& caps, std::uint64_t seed) : storage_(std::make_unique<Storage>()) {
  check(caps.experts > 0 && caps.hidden > 0 && caps.intermediate > 0, ErrorCode::usage,
        "random experts: experts {}, hidden {} and intermediate {} must be positive", caps.experts, caps.hidden,
        caps.intermediate);
  Storage& storage = *storage_;
  StackedExperts& stacked = storage.stacked;
  storage.seed = seed;
  const std::int64_t experts = caps.experts, rows = caps.gate_up_rows();
  // Unit inputs give a unit first projection; the activated product is smaller, so the second one has gain 2.
  const double first = 1 / std::sqrt(static_cast<double>(caps.hidden));
  const double second = 2 / std::sqrt(static_cast<double>(caps.intermediate));
  stacked.gate_up_codes = storage.random_bytes(DType::u8, {experts, rows, caps.hidden / 2}, 0, 256);
  stacked.gate_up_scales = storage.scales(caps, rows, caps.hidden, first);
  stacked.gate_up_zeros = storage.zeros(caps, rows, caps.hidden);
  stacked.down_codes = storage.random_bytes(DType::u8, {experts, caps.hidden, caps.intermediate / 2}, 0, 256);
  stacked.down_scales = storage.scales(caps, caps.hidden, caps.intermediate, second);
  stacked.down_zeros = storage.zeros(caps, caps.hidden, caps.intermediate);
  if (caps.format.format == WeightFormat::nvfp4) {
    // Globals differ between gate, up and the experts, so that a wrong one shows.
    const double unit = 1 / (kRmsE2m1 * kRmsNvfp4Scale);
    stacked.gate_up_global =
        storage.random_f32({experts, caps.activation.gated() ? 2 : 1}, 0.7 * first * unit, 1.3 * first * unit);
    stacked.down_global = storage.random_f32({experts}, 0.7 * second * unit, 1.3 * second * unit);
  }
  if (caps.gate_up_bias) stacked.gate_up_bias = storage.random_bf16({experts, rows}, -0.5, 0.5);
  if (caps.down_bias) stacked.down_bias = storage.random_bf16({experts, caps.hidden}, -0.5, 0.5);
}

RandomExperts::~RandomExperts() = default;

const StackedExperts& RandomExperts::stacked() const noexcept { return storage_->stacked; }

}  // namespace fourfold
