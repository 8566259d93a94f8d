// Roles, shared memory, tensor memory and barriers of attention_fwd_sm100 and attention_fwd_sm100_pair.  The
// kernel takes every offset, column, arrival count and byte count from here, and the same tables are
// published to the host, so the two cannot drift apart.
//
// ::Config comes before this header in the translation unit; its fields are those of
// configs/kernels/attention_fwd_sm100.json:
//   ctas_per_tile 1, or 2 in attention_fwd_sm100_pair, head_dim 64 | 96 | 128, mxfp8, right_mask (causal or a
//   right window), left_mask (a left window), packed_heads (query heads that share a tile, 1: none),
//   dynamic_p (MXFP8: P has a scale for each row and 32 keys; else the constant 2^-8), launch_control (tiles
//   come by cluster launch control after the CTA's own), kv_stages, softmax_registers, correction_registers,
//   other_registers, o_box_rows, and those of attention_fwd_sm100_softmax.cuh.
#pragma once
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa::attention_fwd_sm100 {

inline constexpr bool kMxfp8 = Config::mxfp8;
inline constexpr uint32_t kD = Config::head_dim;
inline constexpr uint32_t kKvStages = Config::kv_stages;
inline constexpr uint32_t kCtas = Config::ctas_per_tile;  // of a cluster, which share keys and values
inline constexpr bool kRightMask = Config::right_mask, kLeftMask = Config::left_mask;
inline constexpr bool kDynamicP = Config::dynamic_p, kConstantP = kMxfp8 && !kDynamicP;
inline constexpr bool kLaunchControl = Config::launch_control;
static_assert(kD == 64 || kD == 96 || kD == 128, "attention_fwd_sm100: head_dim is 64, 96 or 128");
// Query heads of a group that share a tile: row r of a tile is query r / kPackedHeads and head
// r % kPackedHeads of the group.  1: a tile has rows of one head.
inline constexpr uint32_t kPackedHeads = Config::packed_heads;
static_assert(kMxfp8 || !kDynamicP, "P of the BF16 kernel has no scale");
static_assert(kKvStages >= 3, "V of one block and K of the next are in use while a third slot fills");

// ---- tiles ----
// Query tiles of a CTA: the tensor core works for one while the other's softmax runs.
inline constexpr uint32_t kStages = 2;
// Rows of Q, and of K and V, in a tile: M and N of S = Q K^T, K of O = P V.
inline constexpr uint32_t kTile = 128;
inline constexpr uint32_t kElementBytes = kMxfp8 ? 1 : 2;
inline constexpr uint32_t kStageTokens = kTile / kPackedHeads;  // query tokens of a stage
static_assert(kCtas == 1 || (kCtas == 2 && !kMxfp8 && kPackedHeads == 1 && !kLaunchControl),
              "one CTA a tile, or BF16 and a pair that shares one head's static tiles");
static_assert(kPackedHeads >= 1 && kTile % kPackedHeads == 0, "packed_heads divides 128");
static_assert(kPackedHeads == 1 || !kMxfp8, "scales of Q lie head by head");
// A tile lies in shared memory as panels whose rows are one swizzle span: 128 bytes, or 64 where that divides
// a row of D and 128 does not.  A row of 96 bytes (MXFP8, D = 96) has a panel of 128 whose last 32 the copy
// engine fills with zeros and no MMA reads.
MXFA_CONSTEXPR uint32_t panel_row_bytes(uint32_t row) { return row % 128 != 0 && row % 64 == 0 ? 64 : 128; }
inline constexpr uint32_t kPanelRowBytes = panel_row_bytes(kD * kElementBytes);
inline constexpr uint32_t kPanelBytes = kTile * kPanelRowBytes;
inline constexpr uint32_t kPanels = ceil_div(kD * kElementBytes, kPanelRowBytes);
inline constexpr uint32_t kTileBytes = kPanels * kPanelBytes;
// K of an MMA: 16 BF16 or 32 E4M3.
inline constexpr uint32_t kStepBytes = 32, kStepTokens = kStepBytes / kElementBytes;
inline constexpr uint32_t kStepsOfPanel = kPanelRowBytes / kStepBytes;
inline constexpr uint32_t kQkSteps = kD / kStepTokens, kPvSteps = kTile / kStepTokens;
inline constexpr uint32_t kFirstPvSteps = kPvSteps * 3 / 4;  // their P comes with p_full
// Of K and V a CTA of a pair holds its half.
inline constexpr uint32_t kKvTileBytes = kTileBytes / kCtas;
// A tile and its scales arrive on one barrier, that of a pair's first CTA for both.
inline constexpr uint32_t kLoadBytes = kTileBytes + (kMxfp8 ? kScaleAtomBytes : 0);
// O leaves as BF16, in panels likewise.
inline constexpr uint32_t kOPanelRowBytes = panel_row_bytes(kD * 2);
inline constexpr uint32_t kOPanels = kD * 2 / kOPanelRowBytes;
inline constexpr uint32_t kOPanelBytes = kTile * kOPanelRowBytes;
inline constexpr uint32_t kOBoxRows = Config::o_box_rows;
static_assert(kTile % kOBoxRows == 0 && kOBoxRows % kPackedHeads == 0,
              "o_box_rows divides 128 and holds whole tokens");
// Answers of cluster launch control: two slots, so that a role may still read one while the next arrives.
inline constexpr uint32_t kGrantSlots = 2, kGrantBytes = 16;

// ---- roles ----
//
// Softmax and correction: thread = row of S and O, because warp w of a warpgroup reaches TMEM lanes 32 w ..
// 32 w + 31 only.
inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kCorrectionWarp = 8, kMmaWarp = 12, kEpilogueWarp = 13, kLoadWarp = 14,
                          kSchedulerWarp = 15;
// Softmax and correction walk the tiles as warps, mma, epilogue and load as threads.
inline constexpr uint32_t kWalkers = 8 + 4 + 3;
inline constexpr uint32_t kSoftmaxRegisters = Config::softmax_registers;
inline constexpr uint32_t kCorrectionRegisters = Config::correction_registers;
inline constexpr uint32_t kOtherRegisters = Config::other_registers;
// The register file holds 64 K words: 512 a thread for four warpgroups of 128.  With more, setmaxnreg.inc
// would block for ever.
static_assert(2 * kSoftmaxRegisters + kCorrectionRegisters + kOtherRegisters <= 512,
              "register budgets exceed the file");
static_assert(kSoftmaxRegisters >= 128 && kCorrectionRegisters <= 128 && kOtherRegisters <= 128,
              "a launch gives every thread 128: softmax takes more (setmaxnreg.inc), the others give (dec)");

// ---- tensor memory ----
//
// At D = 128 S and O fill all 512 columns, so the scale factors of MXFP8 overlay columns of S that softmax
// has consumed; at D = 64 and 96 they have columns of their own.
inline constexpr bool kOverlay = kMxfp8 && kD == 128;
inline constexpr uint32_t kTmemColumns = 512;
inline constexpr uint32_t kS = 0, kO = kStages * kTile, kSf = kO + kStages * kD;
inline constexpr uint32_t kSfColumns = 4;  // an atom: 128 rows of 4 bytes in 32 lanes
inline constexpr uint32_t kPColumns = kTile * kElementBytes / 4;
inline constexpr uint32_t kPInS = kMxfp8 ? 32 : 64;      // P over the S it was computed from
inline constexpr uint32_t kSfPvInS = kPInS + kPColumns;  // scales of P V behind P
inline constexpr uint32_t kSfQkInS = kSfPvInS + 32;      // scales of the other stage's Q K^T

// clang-format off
enum class Smem { kQ, kO, kKv, kSfQ, kSfKv, kSfP, kAlpha, kRowSum, kGrant, kBarriers, kTmemBase, kCount };
enum class Tmem { kS0, kS1, kO0, kO1, kP0, kP1, kSfPv0, kSfPv1, kSfQk0, kSfQk1, kSfStart,
                  kSfQ0, kSfQ1, kSfK, kSfP0, kSfP1, kSfV, kCount };
enum class Barrier { kQFull, kQEmpty, kKvFull, kKvEmpty, kSFull, kSRead, kAlphaFull, kPFull, kPLast, kOFull,
                     kSumFull, kSumEmpty, kOutFull, kOutEmpty, kLastTile, kGrantFull, kGrantEmpty, kCount };
// clang-format on

template <class Row>
MXFA_CONSTEXPR uint32_t index_of(Row row) {
  return static_cast<uint32_t>(row);
}

// Rows that this Config does not use have no stages (no columns) here, and are left out of what is published.
MXFA_CONSTEXPR KernelTables make_tables() {
  constexpr uint32_t on = kMxfp8, overlay = kOverlay, dedicated = kMxfp8 && !kOverlay, kv = kKvStages,
                     sf = kSfColumns, sf_p = kDynamicP ? kStages : on, grants = kGrantSlots * kLaunchControl;
  constexpr uint32_t never = kNeverWaits;
  KernelTables t{
      .magic = kTablesMagic,
      .threads = kThreads,
      .tmem_columns = kTmemColumns,
      .tile_rows = kCtas * kStages * kTile,
      .role_count = 7,
      .smem_count = index_of(Smem::kCount),
      .tmem_count = index_of(Tmem::kCount),
      .barrier_count = index_of(Barrier::kCount),
      .roles = {{"softmax0", 0, 4, kSoftmaxRegisters},
                {"softmax1", 4, 4, kSoftmaxRegisters},
                {"correction", kCorrectionWarp, 4, kCorrectionRegisters},
                {"mma", kMmaWarp, 1, kOtherRegisters},
                {"epilogue", kEpilogueWarp, 1, kOtherRegisters},
                {"load", kLoadWarp, 1, kOtherRegisters},
                kLaunchControl ? RoleRow{"scheduler", kSchedulerWarp, 1, kOtherRegisters}
                               : RoleRow{"idle", kSchedulerWarp, 1, kOtherRegisters}},
      // Offsets are filled in below.  1024: the 128-byte swizzle repeats over 8 rows of 128 bytes.
      .smem = {{"q", 0, kTileBytes, kStages, 1024},
               {"o", 0, kOPanels * kOPanelBytes, kStages, 1024},
               {"kv", 0, kKvTileBytes, kv, 1024},  // K and V alternate in one ring
               {"sf_q", 0, kScaleAtomBytes, kStages * on, 128},
               {"sf_kv", 0, kScaleAtomBytes, kv * on, 128},
               {"sf_p", 0, kScaleAtomBytes, sf_p, 128},  // constant: one for both stages
               {"alpha", 0, kTile * 4, kStages, 16},     // factor of O, one float a row
               {"row_sum", 0, kTile * 4, kStages, 16},
               {"grant", 0, kGrantBytes, grants, kGrantBytes},
               {"barriers", 0, 0, 1, 8},
               {"tmem_base", 0, 4, 1, 4}},
      .tmem = {{"s0", kS, kTile, "q k^t", "p0 stored"},
               {"s1", kS + kTile, kTile, "q k^t", "p1 stored"},
               {"o0", kO, kD, "first p v", "o0 stored"},
               {"o1", kO + kD, kD, "first p v", "o1 stored"},
               {"p0", kS + kPInS, kPColumns, "s0 loaded", "p v done"},
               {"p1", kS + kTile + kPInS, kPColumns, "s1 loaded", "p v done"},
               {"sf_pv0", kS + kSfPvInS, 2 * sf * overlay, "p_full[0]", "p v done"},
               {"sf_pv1", kS + kTile + kSfPvInS, 2 * sf * overlay, "p_full[1]", "p v done"},
               {"sf_qk0", kS + kTile + kSfQkInS, 2 * sf * overlay, "s_read[1]", "q k^t done"},
               {"sf_qk1", kS + kSfQkInS, 2 * sf * overlay, "s_read[0]", "q k^t done"},
               {"sf_start", kO, 2 * sf * overlay, "start", "first q k^t done"},
               {"sf_q0", kSf, sf * dedicated, "tile start", "last q k^t done"},
               {"sf_q1", kSf + sf, sf * dedicated, "tile start", "last q k^t done"},
               {"sf_k", kSf + 2 * sf, 2 * sf * dedicated, "q k^t", "q k^t done, two blocks"},
               {"sf_p0", kSf + 4 * sf, sf * dedicated, "p v; constant: start", "p v done; constant: end"},
               {"sf_p1", kSf + 5 * sf, sf * dedicated * kDynamicP, "p v", "p v done"},
               {"sf_v", kSf + 6 * sf, 2 * sf * dedicated, "p v", "p v done, two blocks"}},
      // One elected lane arrives for its warp, so a warpgroup counts 4.  The side that may run first waits
      // with parity 1, which a fresh barrier passes.  In a pair the mma thread of the first CTA works for
      // both: what it waits for takes arrivals and bytes from both CTAs, and its commits arrive in both.
      .barriers = {{"q_full", 0, kStages, 1, kCtas * kLoadBytes, "load", "mma", never, 0},
                   {"q_empty", 0, kStages, 1, 0, "mma commit", "load", never, 1},
                   {"kv_full", 0, kv, 1, kLoadBytes, "load", "mma", never, 0},
                   {"kv_empty", 0, kv, 1, 0, "mma commit", "load", never, 1},
                   {"s_full", 0, kStages, 1, 0, "mma commit", "softmax", never, 0},
                   {"s_read", 0, kStages * overlay, 4, 0, "softmax", "mma", never, 0},
                   {"alpha_full", 0, kStages * 4, 1, 0, "softmax warp", "correction warp", never, 0},
                   {"p_full", 0, kStages, 8 * kCtas, 0, "softmax, correction", "mma", never, 0},
                   {"p_last", 0, kStages, 4 * kCtas, 0, "softmax", "mma", never, 0},
                   {"o_full", 0, kStages, 1, 0, "mma commit", "correction", never, 0},
                   {"sum_full", 0, kStages, 4, 0, "softmax", "correction", never, 0},
                   {"sum_empty", 0, kStages, 4, 0, "correction", "softmax", never, 1},
                   {"out_full", 0, kStages, 4, 0, "correction", "epilogue", never, 0},
                   {"out_empty", 0, kStages, 1, 0, "epilogue", "correction", never, 1},
                   {"last_tile", 0, kLaunchControl, 1, 0, "load", "scheduler", never, 0},
                   {"grant_full", 0, grants, 1, kGrantBytes, "scheduler", "all roles", never, 0},
                   {"grant_empty", 0, grants, kWalkers, 0, "all roles", "scheduler", never, 1}}};
  for (const BarrierRow& row : t.barriers) t.smem[index_of(Smem::kBarriers)].bytes += 8 * row.stages;
  uint32_t offset = 0;
  for (uint32_t i = 0; i < t.smem_count; ++i) {
    t.smem[i].offset = round_up(offset, t.smem[i].alignment);
    offset = t.smem[i].offset + t.smem[i].bytes * t.smem[i].stages;
  }
  t.shared_bytes = offset;
  offset = t.smem[index_of(Smem::kBarriers)].offset;
  for (uint32_t i = 0; i < t.barrier_count; ++i) {
    t.barriers[i].offset = offset;
    offset += 8 * t.barriers[i].stages;
  }
  return t;
}
inline constexpr KernelTables kTables = make_tables();
static_assert(kTables.shared_bytes <= 232448, "a CTA has 227 KB of shared memory: take fewer kv_stages");

// The mbarriers in the order of their addresses, without gaps from the first row on: what each is initialised
// with.
struct ArrivalCounts {
  uint32_t barriers;
  uint32_t count[64];
};
MXFA_CONSTEXPR ArrivalCounts arrival_counts() {
  ArrivalCounts counts{};
  for (const BarrierRow& row : kTables.barriers)
    for (uint32_t stage = 0; stage < row.stages; ++stage) counts.count[counts.barriers++] = row.count;
  return counts;
}

// What lives at the same time does not share columns; docs/attention_fwd_sm100.md argues the overlays one by
// one.
MXFA_CONSTEXPR bool tmem_is_sound() {
  using enum Tmem;
  auto row = [](Tmem r) -> const TmemRow& { return kTables.tmem[index_of(r)]; };
  auto apart = [row](Tmem a, Tmem b) {
    return row(a).column + row(a).columns <= row(b).column || row(b).column + row(b).columns <= row(a).column;
  };
  auto inside = [row](Tmem a, Tmem b) {
    return row(a).columns == 0 || (row(b).column <= row(a).column &&
                                   row(a).column + row(a).columns <= row(b).column + row(b).columns);
  };
  constexpr Tmem owners[] = {kS0, kS1, kO0, kO1, kSfQ0, kSfQ1, kSfK, kSfP0, kSfP1, kSfV};
  for (Tmem a : owners)
    for (Tmem b : owners)
      if (a != b && !apart(a, b)) return false;
  for (const TmemRow& r : kTables.tmem)
    if (r.columns != 0 && r.column + r.columns > kTmemColumns) return false;
  return inside(kP0, kS0) && inside(kP1, kS1) && inside(kSfPv0, kS0) && inside(kSfPv1, kS1) &&
         apart(kP0, kSfPv0) && apart(kP1, kSfPv1) && inside(kSfQk0, kS1) && inside(kSfQk1, kS0) &&
         apart(kSfQk0, kP1) && apart(kSfQk1, kP0) && apart(kSfQk0, kSfPv1) && apart(kSfQk1, kSfPv0) &&
         inside(kSfStart, kO0);
}
static_assert(tmem_is_sound(), "tensor memory: regions that live together overlap, or leave the 512 columns");

// The tables without the rows this Config does not use.
MXFA_CONSTEXPR bool is_used(const SmemRow& row) { return row.stages != 0; }
MXFA_CONSTEXPR bool is_used(const TmemRow& row) { return row.columns != 0; }
MXFA_CONSTEXPR bool is_used(const BarrierRow& row) { return row.stages != 0; }
template <class Row, uint32_t kRows>
MXFA_CONSTEXPR void compact(Row (&rows)[kRows], uint32_t& count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (is_used(rows[i])) rows[kept++] = rows[i];
  for (uint32_t i = kept; i < kRows; ++i) rows[i] = {};
  count = kept;
}
MXFA_CONSTEXPR KernelTables published_tables(uint32_t params_bytes) {
  KernelTables t = kTables;
  t.params_bytes = params_bytes;
  compact(t.smem, t.smem_count);
  compact(t.tmem, t.tmem_count);
  compact(t.barriers, t.barrier_count);
  return t;
}

}  // namespace mxfa::attention_fwd_sm100
