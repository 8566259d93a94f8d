// What attention_fwd_sm90 is made of: sizes, shared memory, barriers and registers that follow from Config,
// and the tables that publish them.
#pragma once
#include "src/attention/attention_forward_params.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct AttentionFwdSm90Tables {
  static constexpr int kD = Config::head_dim;
  static constexpr int kTileN = Config::tile_n;
  static constexpr int kConsumers = Config::consumer_warpgroups;
  static constexpr int kStages = Config::kv_stages;
  static constexpr bool kRightMask =
      Config::right_mask;  // causal or a right window: blocks on the diagonal are masked
  static constexpr bool kLeftMask = Config::left_mask;  // a left window
  // P V of a block runs beside Q K^T of the next.  Costs the registers of a second P; without, the tensor
  // core works for the other warpgroups meanwhile.
  static constexpr bool kOverlap = Config::overlap;
  static constexpr bool kMxfp8 = Config::mxfp8;
  static constexpr bool kDynamicP = Config::dynamic_p;  // MXFP8: P has a scale for each row and 32 keys
  static constexpr int kTileM = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // A row of 64 bf16 is 128 bytes = one swizzle span; D = 96 takes two panels, the second half empty (TMA
  // fills it with zeros).
  static constexpr int kPanels = (kD + 63) / 64;
  static constexpr int kQPanel = kTileM * 128, kKvPanel = kTileN * 128;
  static constexpr int kQBytes = kPanels * kQPanel, kKvBytes = kPanels * kKvPanel;
  // O of a tile leaves through the buffer its Q came in, so a second one is needed to load the next Q
  // meanwhile.
  static constexpr int kQStages = 2;
  static constexpr int kQOffset = 0;
  static constexpr int kKvOffset = kQStages * kQBytes;
  static constexpr int kBarrierOffset = kKvOffset + kStages * kKvBytes;
  static constexpr int kQFull = kBarrierOffset, kQEmpty = kQFull + 8 * kQStages;
  static constexpr int kKvFull = kQEmpty + 8 * kQStages, kKvEmpty = kKvFull + 8 * kStages;
  static constexpr int kTileOffset = (kKvEmpty + 8 * kStages + 15) / 16 * 16, kTileBytes = 32;
  static constexpr int kSharedBytes = kTileOffset + kQStages * kTileBytes;
  static_assert(kTileN % 16 == 0 && kTileN >= 64 && kTileN <= 192, "one wgmma covers the key block");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  // Asking for more blocks for ever.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kConsumers * Config::consumer_registers + Config::producer_registers) <= kPool,
                "register budget");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  static_assert(kStages >= (kOverlap ? 3 : 2),
                "K and V in use (overlap: K of the next block beside V of this one) while a slot fills");
  static_assert(!kMxfp8 || kTileN == 128, "the reference points of attention_fwd_sm100: blocks of 128 keys");
  static_assert(kMxfp8 || !kDynamicP, "a scale of P belongs to E4M3");
  // 1024 bytes of slack align the base: dynamic shared memory starts 1024 above the window, but nothing
  // promises that.
  static constexpr int kAllocatedBytes = kSharedBytes + 1024;
  static_assert(kAllocatedBytes <= 232448, "227 KB a CTA");

  // One arrival a consumer warp: every warp reads all of K and V and the description of the tile, and each
  // waits for its own quarter of a wgmma.
  static constexpr int kEmptyCount = 4 * kConsumers;
  static constexpr float kMinusInfinity = -bits_float(0x7f800000);
  static constexpr float kSumLimit =
      4096.0f;  // of a thread's p in a block: they are <= 1 each until the maximum grows
  // MXFP8, as in attention_fwd_sm100: with the constant scale 2^-8 of P the bias brings p = 1 to 256 (the row
  // sum carries the same factor).
  static constexpr float kPBias = kMxfp8 && !kDynamicP ? 8.0f : 0.0f;
  static constexpr float kPUnscale = kMxfp8 && !kDynamicP ? 256.0f : 1.0f;
  // log2.  p stays <= 256, far inside bf16, FP32 sums and what a scale byte can say; with the constant scale
  // at or below 448, the largest E4M3 (log2(448 / 256), rounded down).
  static constexpr float kRescaleThreshold = kPBias != 0 ? 0.80735486f : 8.0f;
  static constexpr int kPGroups = kTileN / int(kScaleBlock);  // of 32 keys
  static constexpr int kGroupParts = int(kScaleBlock) / 8;    // groups of 8 columns in one

  MXFA_CONSTEXPR static KernelTables tables() {
    constexpr uint32_t never = kNeverWaits;
    // The loader is one thread of a warpgroup: setmaxnreg frees the registers of whole warpgroups.  O leaves
    // through its Q; K and V alternate in one ring.
    return {.magic = kTablesMagic,
            .params_bytes = sizeof(AttentionForwardParams),
            .threads = kThreads,
            .shared_bytes = kAllocatedBytes,
            .tmem_columns = 0,
            .tile_rows = kTileM,
            .role_count = 2,
            .smem_count = 4,
            .tmem_count = 0,
            .barrier_count = 4,
            .roles = {{"load", 0, 4, Config::producer_registers},
                      {"consumer", 4, 4 * kConsumers, Config::consumer_registers}},
            .smem = {{"q", kQOffset, kQBytes, kQStages, 1024},
                     {"kv", kKvOffset, kKvBytes, kStages, 1024},
                     {"barriers", kBarrierOffset, kTileOffset - kBarrierOffset, 1, 8},
                     {"tile", kTileOffset, kTileBytes, kQStages, 16}},
            .tmem = {},
            .barriers = {{"q_full", kQFull, kQStages, 1, kQBytes, "load", "consumer", never, 0},
                         {"q_empty", kQEmpty, kQStages, kEmptyCount, 0, "consumer warp", "load", never, 1},
                         {"kv_full", kKvFull, kStages, 1, kKvBytes, "load", "consumer", never, 0},
                         {"kv_empty", kKvEmpty, kStages, kEmptyCount, 0, "consumer warp", "load", never, 1}}};
  }
};

}  // namespace mxfa
