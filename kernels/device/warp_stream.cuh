// A warp's private stream of work: units of packed weights and the activations they meet, copied through a ring of
// stages in shared memory that no other warp touches, multiplied in order of the reduction. The one main loop of every
// tile kernel; a kernel differs in its list of items and in what it does with an item's sums.
#pragma once

#include "device/unit_product.cuh"

namespace fourfold::kernels {

/// One item: kRowTiles tiles of rows of one expert, with one tile of tokens.
struct StreamItem {
  Int32 row_tile;  // first tile of 16 rows
  TokenTile tokens;
};

template <Format kFormat>
__device__ inline Int32 bytes_of_unit(const UnitMatrix& m) {
  // E4M3: a byte per 16 positions of a row. E8M0: a byte per 32.
  if (kFormat == Format::nvfp4) return kUnitCodeBytes + kUnitRows * kUnitDepth / 16;
  if (kFormat == Format::mxfp4) return kUnitCodeBytes + kUnitRows * kUnitDepth / 32;
  return m.unit_bytes;
}

/// The shared memory of one warp's ring.
template <bool kOnSum, int kRowTiles, int kSteps>
struct StageLayout {
  static constexpr Int32 kRowBytes = kUnitRowBytes + row_pad_bytes(kOnSum);
  Int32 unit_bytes;
  __device__ Int32 tokens_offset() const { return kRowTiles * unit_bytes; }
  __device__ Int32 bytes() const { return kRowTiles * unit_bytes + kTokenStep * kSteps * kRowBytes; }
};

/// What is copied next. Items come from `Work`:
///   bool item(Int32 ordinal, StreamItem&)   the ordinal-th item of this warp, false when there is none
///   Int32 source_row(const StreamItem&, Int32 row)   row of the activations, for a row below tokens.count
///   const UnitMatrix& matrix();  const UInt16* activations();  Int32 depth();
///   Int32 first_block(), block_step()       the blocks of 64 positions that are this warp's
template <class Work, Format kFormat, Float16 kFloat, int kRowTiles, int kSteps>
struct Feed {
  using Layout = StageLayout<kScaleOnSum<kFormat, kFloat>, kRowTiles, kSteps>;

  const UInt8* units_ = nullptr;    // the item's first row tile, this block, this lane's 16 bytes of codes
  const UInt16* tokens_ = nullptr;  // row 0 of the activations, this block, this lane's 8 positions
  Int32 rows_[2 * kSteps] = {};     // rows of activations that this lane copies from, -1 for zeros
  Int32 tile_offset_[kRowTiles] = {};
  Int32 scale_offset_ = 0;  // from units_ to this lane's 16 bytes of scales, of a format whose unit size is known
  Int32 ordinal_ = 0, block_ = 0, steps_ = 0;
  bool open_ = false;

  __device__ void open(const Work& work, UInt32 lane) {
    StreamItem item;
    block_ = work.first_block();
    const UnitMatrix& m = work.matrix();
    open_ = block_ < m.depth_blocks && work.item(ordinal_, item);
    if (!open_) return;
    const Int32 unit_bytes = bytes_of_unit<kFormat>(m), tile_bytes = m.depth_blocks * unit_bytes;
    units_ = m.units + item.tokens.expert * m.expert_bytes + static_cast<Int64>(item.row_tile) * tile_bytes +
             static_cast<Int64>(block_) * unit_bytes + 16 * lane;
    tokens_ = work.activations() + kUnitDepth * block_ + 8 * (lane % 8);
    const Int32 last_tile = m.row_tiles - 1 - item.row_tile;  // tiles behind the matrix read its last; nobody uses them
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) tile_offset_[tile] = min(tile, last_tile) * tile_bytes;
    const Int32 chunks = (unit_bytes - kUnitCodeBytes) / 16;
    scale_offset_ = min(static_cast<Int32>(lane) / chunks, last_tile) * tile_bytes + kUnitCodeBytes +
                    16 * (static_cast<Int32>(lane) % chunks - static_cast<Int32>(lane));
    steps_ = (item.tokens.count + kTokenStep - 1) / kTokenStep;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      const Int32 row = static_cast<Int32>(lane / 8) + 4 * i;
      rows_[i] = row < item.tokens.count ? work.source_row(item, row) : -1;
    }
  }

  __device__ void advance(const Work& work, UInt32 lane) {
    if (!open_) return;
    block_ += work.block_step();
    units_ += work.block_step() * bytes_of_unit<kFormat>(work.matrix());
    tokens_ += work.block_step() * kUnitDepth;
    if (block_ < work.matrix().depth_blocks) return;
    ++ordinal_;
    open(work, lane);
  }

  __device__ void copy_units(const Work& work, UInt32 stage, UInt32 lane) const {
    if (!open_) return;
    const Int32 unit_bytes = bytes_of_unit<kFormat>(work.matrix());
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
      copy_async_16(stage + tile * unit_bytes + 16 * lane, units_ + tile_offset_[tile], 16);
    const UInt32 chunks = (unit_bytes - kUnitCodeBytes) / 16;  // of scales: at most 20, see docs
    if (kFormat == Format::nvfp4 || kFormat == Format::mxfp4) {
      static_assert(kRowTiles <= 8, "one copy a lane brings the scales: 4 chunks a tile for nvfp4");
      if (lane < kRowTiles * chunks)
        copy_async_16(stage + lane / chunks * unit_bytes + kUnitCodeBytes + lane % chunks * 16, units_ + scale_offset_,
                      16);
    } else {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile)
        if (lane < chunks)
          copy_async_16(stage + tile * unit_bytes + kUnitCodeBytes + 16 * lane,
                        units_ + tile_offset_[tile] + kUnitCodeBytes, 16);
    }
  }

  /// Rows behind the tile's tokens and positions behind the logical depth become zeros: nothing is read for them.
  __device__ void copy_tokens(const Work& work, UInt32 stage, UInt32 lane) const {
    if (!open_) return;
    const Layout layout{bytes_of_unit<kFormat>(work.matrix())};
    const bool inside = kUnitDepth * block_ + 8 * static_cast<Int32>(lane % 8) < work.depth();
    const UInt32 to = stage + layout.tokens_offset() + lane / 8 * Layout::kRowBytes + lane % 8 * 16;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      if (i >= 2 && i >= 2 * steps_) break;
      const bool live = inside && rows_[i] >= 0;
      const UInt16* from = live ? tokens_ + static_cast<Int64>(rows_[i]) * work.depth() : work.activations();
      copy_async_16(to + 4 * i * Layout::kRowBytes, from, live ? 16 : 0);
    }
  }
};

/// Runs a warp's items. finish(item, steps, acc) gets an item's sums: acc[row tile][token step][c].
/// kUnitsFirst: the work list is older than the kernel before this one, so weights are fetched before waiting for it;
/// without, the caller has waited.
template <class Work, Format kFormat, Float16 kFloat, int kSpans, int kRowTiles, int kSteps, int kStages,
          bool kUnitsFirst, class Finish>
__device__ inline void run_stream(const Work& work, UInt32 ring, UInt32 lane, const Finish& finish) {
  constexpr bool kOnSum = kScaleOnSum<kFormat, kFloat>;
  using Layout = StageLayout<kOnSum, kRowTiles, kSteps>;
  const Layout layout{bytes_of_unit<kFormat>(work.matrix())};
  const UInt32 stage_size = layout.bytes(), ring_end = ring + kStages * stage_size;

  Feed<Work, kFormat, kFloat, kRowTiles, kSteps> feed;
  feed.open(work, lane);
  {
    auto early = feed;
#pragma unroll 1
    for (UInt32 stage = ring; stage < ring_end - stage_size; stage += stage_size) {
      early.copy_units(work, stage, lane);
      early.advance(work, lane);
    }
  }
  if (kUnitsFirst) {
    wait_for_previous_kernel();
    let_next_kernel_start();
  }
#pragma unroll 1
  for (UInt32 stage = ring; stage < ring_end - stage_size; stage += stage_size) {
    feed.copy_tokens(work, stage, lane);
    commit_copies();
    feed.advance(work, lane);
  }

  UInt32 full = ring, empty = ring_end - stage_size;
  StreamItem item;
#pragma unroll 1
  for (Int32 ordinal = 0; work.item(ordinal, item); ++ordinal) {
    const int steps = (item.tokens.count + kTokenStep - 1) / kTokenStep;
    float acc[kRowTiles][kSteps][4] = {};
#pragma unroll 1
    for (Int32 block = work.first_block(); block < work.matrix().depth_blocks; block += work.block_step()) {
      wait_copies<kStages - 2>();
      __syncwarp();  // this stage is there for every lane, and every lane is done with the one before
      feed.copy_units(work, empty, lane);
      feed.copy_tokens(work, empty, lane);
      commit_copies();
      feed.advance(work, lane);

      UInt32 tokens[kSteps][8];
      const UInt32 row = full + layout.tokens_offset() + lane / 4 * Layout::kRowBytes;
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
        if (n == 0 || n < steps) load_token<kOnSum>(row + n * kTokenStep * Layout::kRowBytes, lane % 4, tokens[n]);
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const UInt32 unit = full + tile * layout.unit_bytes;
        if constexpr (kOnSum) {
          multiply_unit_on_sum<kFormat, kFloat, kSpans, kSteps>(work.matrix(), unit, lane, tokens, steps, acc[tile]);
        } else {
          multiply_unit_scaled<kFormat, kFloat, kSteps>(unit, lane, tokens, steps, acc[tile]);
        }
      }
      full = full + stage_size == ring_end ? ring : full + stage_size;
      empty = empty + stage_size == ring_end ? ring : empty + stage_size;
    }
    finish(item, steps, acc);
  }
  wait_copies<0>();
}

}  // namespace fourfold::kernels
