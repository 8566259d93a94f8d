// The machine that PTX runs on: grids of clusters of CTAs of warps, and what the parts of the emulator may
// know of each other. core/ interprets instructions and schedules warps; engines/ perform asynchronous work;
// memory/ maps addresses; driver_api/ owns all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mxfa::emulator {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;

// One 32-bit register of a warp.  A 64-bit register is two adjacent rows read as uint64_t[32] (so an f32x2
// register is float[64]); a 128-bit one is four rows read as 16-byte values; a 16- or 8-bit register sits in
// the low bits of a 32-bit lane.
struct alignas(64) Row {
  uint32_t lane[kLanes];
};

// Something a real device would answer with an error.  `code` is a CUresult.  The text names the value, the
// place and the remedy; the core adds kernel, CTA, warp, lanes, PTX line and CUDA line before it reaches the
// user.
struct Fault : std::runtime_error {
  int code;
  Fault(int code, const std::string& text) : std::runtime_error(text), code(code) {}
};

struct DeviceModel {          // configs/devices/*.json
  std::string key, name;      // "b200", "NVIDIA B200 (mxfa CPU driver)"
  int major = 10, minor = 0;  // compute capability
  int sm_count = 148;
  uint32_t shared_per_block_optin = 232448, shared_per_sm = 233472, shared_reserved = 1024;
  uint32_t registers_per_sm = 65536;
  int max_cluster = 8, max_cluster_non_portable = 16;
  uint64_t memory_bytes = 0;
  bool tensor_memory = true;
  std::vector<int64_t> attributes;  // indexed by CUdevice_attribute
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// Order of events.  Policies never change meaning, only order.
//   Functional  asynchronous work is done when it is issued
//   Lazy        as late as legal, when nothing else can run; sources are read late
//   Eager       destinations are overwritten when the work is issued (copies: by poison; the tensor pipe: by
//               its result), sources of copies are read late, everything completes late and youngest first
//   Random      at every synchronisation point a uniform choice among runnable fragments and legal events
//   Pct         fragments and queues of asynchronous work have random priorities, the highest runs, and at
//               depth - 1 random synchronisation points the running one falls below all others (Burckhardt et
//               al., "A randomized scheduler with probabilistic guarantees of finding bugs")
//   Split       as Random, and lanes of a warp that diverged meet again only where an instruction makes them
// The last three also vary what PTX leaves open: whether a try_wait gives up, the order in which clusters
// start and are granted; Split, which lane is elected.
struct Schedule {
  enum class Kind { Functional, Lazy, Eager, Random, Pct, Split } kind = Kind::Functional;
  uint64_t seed = 0;
  uint32_t depth = 3;  // Pct
  bool randomised() const { return kind >= Kind::Random; }
  std::string name() const;  // as MXFA_EMU_SCHEDULE spells it
};
std::optional<Schedule> parse_schedule(std::string_view text);
extern const char* const kScheduleNames;

// Counters of one launch, for reports and benchmarks.
struct Counters {
  uint64_t warp_instructions = 0, lane_instructions = 0;
  uint64_t mma_instructions = 0, mma_macs = 0;  // tensor core
  uint64_t tma_bytes = 0, bulk_bytes = 0;
  uint64_t trace = 0;  // hash of what ran when: the same seed must give the same one
};

class Kernel;  // core/kernel.hpp: a lowered entry
struct Warp;   // core/warp.hpp
struct Cta;    // core/cta.hpp (engine state inside is declared in engines/)
struct Cluster;
struct Grid;  // core/warp.hpp
class Arena;  // memory/memory.hpp

}  // namespace mxfa::emulator
