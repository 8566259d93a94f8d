// What attention_fwd_mx_sm90 is made of: sizes, shared memory, barriers and registers that follow from
// Config, and the tables that publish them.
#pragma once
#include "src/attention/attention_forward_params.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct AttentionFwdMxSm90Tables {
  static constexpr int kD = Config::head_dim;
  static constexpr int kConsumers = Config::consumer_warpgroups;
  static constexpr int kStages = Config::kv_stages;
  static constexpr int kStaging = Config::staging_stages;
  // P V of a block runs beside Q K^T of the next.  Costs the registers of a second P; without, the tensor
  // core works for the other warpgroups meanwhile.
  static constexpr bool kOverlap = Config::overlap;
  static constexpr bool kDynamicP = Config::dynamic_p;  // P has a scale for each row and 32 keys
  static constexpr bool kRightMask = Config::right_mask, kLeftMask = Config::left_mask;
  static constexpr int kTileM = 64 * kConsumers;
  // The reference point of a row follows the maxima of blocks of 128 keys, as in attention_fwd_sm100: P then
  // rounds to the same E4M3 values.  It is also the block of keys that an atom of scales covers.
  static constexpr int kTileN = 128;
  static constexpr int kUnit = 64;  // query rows of a warpgroup; Q arrives by units
  static constexpr int kThreads = 128 * (kConsumers + 1);

  // BF16 operands: panels of 64 channels, rows of 128 bytes in the 128-byte swizzle.
  static constexpr int kPanels = (kD + 63) / 64;
  static constexpr int kQPanel = kTileM * 128, kKvPanel = kTileN * 128;
  static constexpr int kQBytes = kPanels * kQPanel, kKvBytes = kPanels * kKvPanel;
  // E4M3 as it arrives: a row is 64 bytes in the 64-byte swizzle, or 128 (D = 96: the last 32 are zeros).
  static constexpr int kStagedRow = kD == 64 ? 64 : 128;
  static constexpr int kStagedBytes = kTileN * kStagedRow;
  static constexpr int kUnitBytes = kUnit * kStagedRow;
  static constexpr int kChunks = kD / 16;  // 16-byte chunks of a row
  static constexpr int kAtom = int(kScaleAtomBytes);

  // O of a tile leaves through the buffer its Q came in, so a second one is needed to load the next Q
  // meanwhile.
  static constexpr int kQStages = 2;
  // Descriptions of tiles.  The loads are up to kStaging - 1 tiles ahead of the expansion, the expansion up
  // to two ahead of the consumers' last look.
  static constexpr int kTileStages = kStaging + 2;
  static constexpr int kExpanders = 4;                // warps
  static constexpr int kFactorBytes = kPanels * 128;  // of a warp: BF16 factors of V's channels, in pairs

  static constexpr int kQOffset = 0;
  static constexpr int kKvOffset = kQStages * kQBytes;
  static constexpr int kStagedOffset = kKvOffset + kStages * kKvBytes;
  static constexpr int kScaleOffset = kStagedOffset + kStaging * kStagedBytes;
  static constexpr int kFactorOffset = kScaleOffset + kStaging * kAtom;
  static constexpr int kBarrierOffset = kFactorOffset + kExpanders * kFactorBytes;
  static constexpr int kQFull = kBarrierOffset, kQEmpty = kQFull + 8 * kQStages;
  static constexpr int kKvFull = kQEmpty + 8 * kQStages, kKvEmpty = kKvFull + 8 * kStages;
  static constexpr int kStagedFull = kKvEmpty + 8 * kStages, kStagedEmpty = kStagedFull + 8 * kStaging;
  static constexpr int kTileFull = kStagedEmpty + 8 * kStaging;
  static constexpr int kTileOffset = (kTileFull + 8 * kTileStages + 15) / 16 * 16, kTileBytes = 64;
  static constexpr int kLoaderOffset = kTileOffset + kTileStages * kTileBytes;  // where the loads stand
  static constexpr int kSharedBytes = kLoaderOffset + 16;
  static_assert(kSharedBytes <= 232448, "227 KB a CTA: take fewer kv_stages or staging_stages");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  static_assert(kStaging >= 2, "a tile arrives while the one before is expanded");
  static_assert(kStages >= (kOverlap ? 3 : 2),
                "K and V in use (overlap: K of the next block beside V of this one) while a slot fills");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kConsumers * Config::consumer_registers + Config::producer_registers) <= kPool,
                "register budget");

  static constexpr int kEmptyCount = 4 * kConsumers;  // one arrival a consumer warp

  static constexpr float kInfinity = bits_float(0x7f800000);
  // As in attention_fwd_sm100: with the constant scale 2^-8 of P the bias brings p = 1 to 256 (the row sum
  // carries the same factor), and the threshold keeps p at or below 448, the largest E4M3.
  static constexpr float kPBias = kDynamicP ? 0.0f : 8.0f;
  static constexpr float kRescaleThreshold = kDynamicP ? 8.0f : 0.80735486f;  // log2(448 / 256), rounded down

  MXFA_CONSTEXPR static KernelTables tables() {
    constexpr uint32_t never = kNeverWaits;
    return {.magic = kTablesMagic,
            .params_bytes = sizeof(AttentionForwardParams),
            .threads = kThreads,
            .shared_bytes = kSharedBytes,
            .tmem_columns = 0,
            .tile_rows = kTileM,
            .role_count = 2,
            .smem_count = 8,
            .tmem_count = 0,
            .barrier_count = 7,
            .roles = {{"load, expand", 0, 4, Config::producer_registers},
                      {"consumer", 4, 4 * kConsumers, Config::consumer_registers}},
            .smem = {{"q", kQOffset, kQBytes, kQStages, 1024},
                     {"kv", kKvOffset, kKvBytes, kStages, 1024},
                     {"staged", kStagedOffset, kStagedBytes, kStaging, 1024},
                     {"sf_staged", kScaleOffset, kAtom, kStaging, 128},
                     {"factors of v", kFactorOffset, kFactorBytes, kExpanders, 16},
                     {"barriers", kBarrierOffset, kTileOffset - kBarrierOffset, 1, 8},
                     {"tile", kTileOffset, kTileBytes, kTileStages, 16},
                     {"loader", kLoaderOffset, 16, 1, 16}},
            .tmem = {},
            .barriers = {
                {"q_full", kQFull, kQStages, kExpanders, 0, "expander warp", "consumer", never, 0},
                {"q_empty", kQEmpty, kQStages, kEmptyCount, 0, "consumer warp", "expander", never, 1},
                {"kv_full", kKvFull, kStages, kExpanders, 0, "expander warp", "consumer", never, 0},
                {"kv_empty", kKvEmpty, kStages, kEmptyCount, 0, "consumer warp", "expander", never, 1},
                {"staged_full", kStagedFull, kStaging, 1, kStagedBytes + kAtom, "load", "expander", never, 0},
                {"staged_empty", kStagedEmpty, kStaging, kExpanders, 0, "expander warp", "load", never, 1},
                {"tile_full", kTileFull, kTileStages, 1, 0, "load", "expander", never, 0}}};
  }
};

}  // namespace mxfa
