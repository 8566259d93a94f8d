// What the host plans where it knows the lengths, for lengths that lie in device memory: checks the offsets
// against the capacity that was planned, and writes the list of tiles, the offsets and the starts of scales
// that the attention kernel behind it on the stream reads.  Offsets that are wrong are recorded, and the list
// is then empty, so that nothing is computed from them.
//
// Every CTA does the same work for its share of the heads, and none waits for another.  The tiles of one head
// are numbered by slots: sequence b starts at slot offsets[b] / rows + b, which leaves it ceil(length / rows)
// slots and at most one to spare, so that no thread needs a sum over the batch.  A thread takes a run of
// slots.  The order is that of a stable counting sort, the same in every run: heaviest class first, in it
// head by head, so that tiles of the same keys are neighbours.
#include "ptx/barrier.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_lengths_params.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

struct AttentionLengths {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kClasses = 32;  // of equal cost, 1/31 of the heaviest apart; one for each lane
  static constexpr int kScaleRows = 128, kUnitRows = 64;  // sequences in scale storage; of a tile's last part

  static constexpr KernelTables kTables = {.magic = kTablesMagic,
                                           .params_bytes = sizeof(AttentionLengthsParams),
                                           .threads = kThreads,
                                           .tile_rows = 1,
                                           .role_count = 1,
                                           .roles = {{"slot", 0, kWarps, 0}}};

  struct Shared {
    int32_t counts[kClasses][kThreads];  // tiles of a thread; then, in their class, before them
    int32_t class_tiles[kClasses];
    int32_t class_start[kClasses + 1];  // tiles of one head before the class
    // A use each, so that none overwrites what another may still read.
    int32_t wrong_q[kWarps], wrong_k[kWarps], longest[kWarps], sums[kWarps];
  };

  // One operand's sequences.
  struct Lengths {
    const int32_t* offsets;
    bool broadcast;  // one sequence for all
    int32_t max_length, max_total;

    MXFA_DEVICE Sequence at(int32_t batch) const { return load_sequence(offsets, broadcast ? 0 : batch); }
  };

  // Twin of LengthsError::Kind in runtime/host/attention_lengths.cpp.
  enum Kind : int32_t { kRight, kFirstOffset, kDecreasing, kTooLong, kTotal };

  MXFA_DEVICE static Kind examine(const Lengths& l, int32_t index) {
    const int32_t first = ld_global_s32(l.offsets + index), end = ld_global_s32(l.offsets + index + 1);
    if (index == 0 && first != 0) return kFirstOffset;
    if (end < first) return kDecreasing;
    if (int64_t{end} - first > l.max_length) return kTooLong;
    if (end > l.max_total) return kTotal;
    return kRight;
  }

  // Smallest or largest value of all threads; by_warp is for one call.
  template <bool kSmallest>
  MXFA_DEVICE static int32_t extreme(int32_t (&by_warp)[kWarps], int32_t value) {
    const auto pick = [](int32_t x, int32_t y) { return kSmallest ? min_of(x, y) : max_of(x, y); };
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) value = pick(value, int32_t(shfl_bfly(uint32_t(value), mask)));
    if (lane_id() == 0) by_warp[threadIdx.x / 32] = value;
    cta_sync();
    value = by_warp[0];
    for (int warp = 1; warp < kWarps; ++warp) value = pick(value, by_warp[warp]);
    return value;
  }

  // Sum over the lanes up to and with this one.
  MXFA_DEVICE static int32_t warp_sum_up_to(int32_t value) {
    const int32_t lane = lane_id();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t before = shfl_idx(value, max_of(lane - step, 0));
      if (lane >= step) value += before;
    }
    return value;
  }

  // The first sequence that is wrong, INT32_MAX if none is.
  MXFA_DEVICE static int32_t first_wrong(int32_t (&by_warp)[kWarps], const Lengths& l, int32_t count) {
    int32_t wrong = 0x7fffffff;
    for (int32_t b = threadIdx.x; b < count; b += kThreads)
      if (examine(l, b) != kRight) {
        wrong = b;
        break;
      }
    return extreme<true>(by_warp, wrong);
  }

  // int32[8] {kind, 0 for Q or 1 for K, index, value, value before it}; the first since the host's last look
  // stays.
  MXFA_DEVICE static void record(const AttentionLengthsParams& p, const Lengths& l, int32_t which,
                                 int32_t wrong) {
    if (ld_global_s32(pointer<const int32_t>(p.error)) != kRight) return;
    const Kind kind = examine(l, wrong);
    const int32_t first = ld_global_s32(l.offsets + wrong), end = ld_global_s32(l.offsets + wrong + 1);
    const int32_t index = kind == kFirstOffset || kind == kTooLong ? wrong : wrong + 1;
    const int32_t value = kind == kFirstOffset ? first : kind == kTooLong ? end - first : end;
    st_global_v4(pointer<int32_t>(p.error) + 4, {uint32_t(first), 0, 0, 0});
    st_global_v4(pointer<int32_t>(p.error),
                 {uint32_t(kind), uint32_t(which), uint32_t(index), uint32_t(value)});
  }

  MXFA_DEVICE static void write_offsets(int32_t* checked, const Lengths& l, int32_t count, bool right) {
    for (int32_t b = threadIdx.x; b <= count; b += kThreads)
      st_global_b32(checked + b, right ? ld_global_s32(l.offsets + b) : 0);
  }

  // Each sequence padded to kScaleRows.
  MXFA_DEVICE static void write_scale_offsets(Shared& shared, int32_t* starts, const Lengths& l,
                                              int32_t count, bool right) {
    if (threadIdx.x == 0) st_global_b32(starts, 0);
    int32_t before = 0;
    for (int32_t first = 0; first < count; first += kThreads) {
      const int32_t b = first + int32_t(threadIdx.x);
      const int32_t rows = right && b < count ? round_up(l.at(b).length, kScaleRows) : 0;
      int32_t sum = warp_sum_up_to(rows);
      if (lane_id() == 31) shared.sums[threadIdx.x / 32] = sum;
      cta_sync();
      sum += before;
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp < int(threadIdx.x / 32)) sum += shared.sums[warp];
        before += shared.sums[warp];
      }
      cta_sync();  // before the next round, or operand, writes sums
      if (b < count) st_global_b32(starts + b + 1, sum);
    }
  }

  // ---- slots ----
  MXFA_DEVICE static int32_t slot_of(const Lengths& l, int32_t batch, int32_t rows) {
    if (l.broadcast) return batch * ceil_div(l.at(0).length, rows);
    return ld_global_s32(l.offsets + batch) / rows + batch;
  }
  // Calls visit(slot, sequence, tile in it, whether there is such a tile) for the slots [slot, end).
  template <class Visit>
  MXFA_DEVICE static void walk(const Lengths& l, int32_t batch, int32_t rows, int32_t slot, int32_t end,
                               const Visit& visit) {
    if (slot >= end) return;
    int32_t b = 0;
    for (int32_t high = batch; high - b > 1;) {  // slot_of(b) <= slot < slot_of(high)
      const int32_t middle = b + (high - b) / 2;
      (slot_of(l, middle, rows) <= slot ? b : high) = middle;
    }
    int32_t start = slot_of(l, b, rows), next = slot_of(l, b + 1, rows);
    for (; slot < end; ++slot) {
      if (slot == next) start = next, ++b, next = slot_of(l, b + 1, rows);
      const int32_t tile = slot - start;
      visit(slot, b, tile, tile < ceil_div(l.at(b).length, rows));
    }
  }

  // ---- tiles ----
  struct Tile {
    int32_t first, rows;  // rows a multiple of kUnitRows
    int32_t blocks;       // of the other operand's rows that some row sees
  };

  // The units of a sequence dealt evenly to its tiles.
  MXFA_DEVICE static Tile tile_of(const AttentionLengthsParams& p, int32_t length, int32_t other,
                                  int32_t tile) {
    const int32_t tiles = ceil_div(length, p.tile_rows), units = ceil_div(length, p.unit_rows);
    const int32_t least = units / tiles, more = units % tiles;
    Tile t;
    t.first = p.unit_rows * (least * tile + min_of(tile, more));
    t.rows = min_of(p.unit_rows * (least + (tile < more)), round_up(length - t.first, kUnitRows));
    // Row i sees the others from i + (other - length) - window_left to i + (other - length) + window_right.
    const int32_t shift = other - length;
    int32_t begin = 0, end = other;
    if (p.window_left >= 0 && !p.in_order) begin = max_of(t.first + shift - p.window_left, 0);
    if (p.window_right >= 0 && !p.in_order)
      end = min_of(end, max_of(min_of(t.first + t.rows, length) + shift + p.window_right, 0));
    t.blocks = max_of(ceil_div(end, p.block_rows) - begin / p.block_rows, 0);
    return t;
  }

  // Tiles before each thread's in their class, and before each class.
  MXFA_DEVICE static void add_up(Shared& shared) {
    const int32_t lane = lane_id();
    for (int c = threadIdx.x / 32; c < kClasses; c += kWarps) {
      int32_t before = 0;
      for (int first = 0; first < kThreads; first += 32) {
        const int32_t own = shared.counts[c][first + lane], sum = warp_sum_up_to(own);
        shared.counts[c][first + lane] = before + sum - own;
        before += int32_t(shfl_idx(sum, 31));
      }
      if (lane == 0) shared.class_tiles[c] = before;
    }
    cta_sync();
    if (threadIdx.x < kClasses) {
      const int32_t own = shared.class_tiles[lane], sum = warp_sum_up_to(own);
      shared.class_start[lane] = sum - own;
      if (lane == kClasses - 1) shared.class_start[kClasses] = sum;
    }
    cta_sync();
  }

  // Where the list has its tile of number `index`: with zigzag dealt to the CTAs forwards and backwards.
  MXFA_DEVICE static int32_t place(const AttentionLengthsParams& p, int32_t index) {
    const int32_t round = index / p.grid, cta = index % p.grid;
    return p.zigzag && round % 2 == 1 ? round * p.grid + p.grid - 1 - cta : index;
  }
  MXFA_DEVICE static void write_tile(const AttentionLengthsParams& p, int32_t index, U32x4 entry) {
    st_global_v4(pointer<U32x4>(p.tiles) + place(p, index), entry);
  }

  MXFA_DEVICE static void run(const AttentionLengthsParams& p) {
    __shared__ Shared shared;
    const bool broadcast = p.broadcast_q != 0;
    const Lengths q{pointer<const int32_t>(p.offsets_q), broadcast, p.max_length_q, p.max_total_q};
    const Lengths k{pointer<const int32_t>(p.offsets_k), false, p.max_length_k, p.max_total_k};
    const int32_t count_q = broadcast ? 1 : p.batch, thread = threadIdx.x;
    const int32_t wrong_q = first_wrong(shared.wrong_q, q, count_q),
                  wrong_k = first_wrong(shared.wrong_k, k, p.batch);
    const bool right_q = wrong_q >= count_q, right = right_q && wrong_k >= p.batch;
    if (blockIdx.x == 0) {
      if (thread == 0 && !right) record(p, right_q ? k : q, right_q, right_q ? wrong_k : wrong_q);
      write_offsets(pointer<int32_t>(p.checked_q), q, count_q, right);
      write_offsets(pointer<int32_t>(p.checked_k), k, p.batch, right);
      if (p.scale_offsets_q != 0) {
        write_scale_offsets(shared, pointer<int32_t>(p.scale_offsets_q), q, count_q, right);
        write_scale_offsets(shared, pointer<int32_t>(p.scale_offsets_k), k, p.batch, right);
      }
    }

    const Lengths &own = p.of_keys ? k : q, &other = p.of_keys ? q : k;
    int32_t longest = 0;
    if (right)
      for (int32_t b = thread; b < p.batch; b += kThreads) longest = max_of(longest, other.at(b).length);
    const int32_t most = max_of(ceil_div(extreme<false>(shared.longest, longest), p.block_rows), 1);
    const auto class_of = [&](const Tile& t) { return kClasses - 1 - t.blocks * (kClasses - 1) / most; };
    const int32_t slots = right ? slot_of(own, p.batch, p.tile_rows) : 0;
    const int32_t run_slots = ceil_div(slots, kThreads);
    const int32_t first = min_of(thread * run_slots, slots), end = min_of(first + run_slots, slots);

    for (int c = 0; c < kClasses; ++c) shared.counts[c][thread] = 0;
    walk(own, p.batch, p.tile_rows, first, end, [&](int32_t, int32_t b, int32_t tile, bool exists) {
      if (exists) ++shared.counts[class_of(tile_of(p, own.at(b).length, other.at(b).length, tile))][thread];
    });
    cta_sync();
    add_up(shared);
    walk(own, p.batch, p.tile_rows, first, end, [&](int32_t, int32_t b, int32_t tile, bool exists) {
      if (!exists) return;
      const Tile t = tile_of(p, own.at(b).length, other.at(b).length, tile);
      const int32_t c = class_of(t), in_class = shared.counts[c][thread]++;
      const int32_t start = shared.class_start[c], tiles = shared.class_start[c + 1] - start;
      // Of the tiles that add to the same rows: of this sequence, or of all that share one Q.
      const int32_t rank = !p.in_order ? 0 : broadcast ? start + in_class : tile;
      for (int32_t head = blockIdx.x; head < p.heads; head += gridDim.x)
        write_tile(p, p.heads * start + head * tiles + in_class,
                   {uint32_t(b), uint32_t(head), uint32_t(t.first), uint32_t(t.rows + 256 * rank)});
    });
    // As many ends as CTAs may look for: each reads one entry past the last, and with zigzag the last round
    // has gaps.
    if (blockIdx.x == 0) {
      const int32_t total = p.heads * shared.class_start[kClasses];
      for (int32_t i = total + thread; i < min_of(total + 2 * p.grid, p.tile_slots); i += kThreads)
        write_tile(p, i, {uint32_t(-1), 0, 0, 0});
    }

    // Tiles of query rows, one a slot, in order; slots to spare have batch -1.
    if (p.q_tiles == 0) return;
    const int32_t threads = gridDim.x * kThreads, share = ceil_div(p.q_tile_slots, threads);
    const int32_t slots_q = right ? slot_of(q, p.batch, p.q_tile_rows) : 0;
    const int32_t first_q = min_of((int32_t(blockIdx.x) * kThreads + thread) * share, p.q_tile_slots);
    const int32_t end_q = min_of(first_q + share, p.q_tile_slots);
    int32_t* entries = pointer<int32_t>(p.q_tiles);
    walk(q, p.batch, p.q_tile_rows, first_q, min_of(end_q, slots_q),
         [&](int32_t slot, int32_t b, int32_t tile, bool exists) {
           st_global_v2(entries + 2 * int64_t{slot}, exists ? b : -1, tile);
         });
    for (int32_t slot = max_of(first_q, slots_q); slot < end_q; ++slot)
      st_global_v2(entries + 2 * int64_t{slot}, uint32_t(-1), 0);
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(attention_lengths, mxfa::AttentionLengths::kTables);

extern "C" __global__ void __launch_bounds__(mxfa::AttentionLengths::kThreads)
    attention_lengths(const __grid_constant__ mxfa::AttentionLengthsParams p) {
  mxfa::AttentionLengths::run(p);
}
