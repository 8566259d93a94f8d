// What attention_fwd_sm90 is made of: sizes, shared memory, barriers and registers that follow from Config,
// and the tables that publish them.
#pragma once
#include "src/attention/attention_forward_params.cuh"
#include "src/common/math.cuh"
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
  static_assert(kTileN % 16 == 0 && kTileN >= 64 && kTileN <= 256, "one wgmma covers the key block");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  // Asking for more blocks for ever.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kConsumers * Config::consumer_registers + Config::producer_registers) <= kPool,
                "register budget");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  static_assert(kStages >= 3,
                "K of the next block and V of this one are in use while the loader fills a third slot");
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
  static constexpr float kRescaleThreshold = 8.0f;  // log2: p stays <= 256, far inside bf16 and FP32 sums

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
