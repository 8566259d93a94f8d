// mbarrier objects (PTX ISA 9.7.13.15).  The state lives in the object's 8 bytes of shared memory, so that
// overwriting a live barrier is visible, under an encoding of our own (the real one is opaque to PTX):
//   bit 0 phase parity | [1:21) expected arrivals | [21:41) pending arrivals | [41:62) signed tx-count |
//   [62:64) tag 0b10 = initialised
// Neither fresh memory (0xff bytes) nor zeros carry the tag.
#include <cuda.h>
#include <fmt/format.h>

#include <cstring>

#include "engines/engines.hpp"
#include "engines/mbarrier_state.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

constexpr uint32_t kMaxCount = (1u << 20) - 1;  // of arrivals and, either sign, of bytes in flight
constexpr uint64_t kTag = 2;

struct State {
  uint32_t phase = 0, expected = 0, pending = 0;
  int32_t tx = 0;
};

uint64_t encode(const State& s) {
  return uint64_t{s.phase} | uint64_t{s.expected} << 1 | uint64_t{s.pending} << 21 |
         (static_cast<uint64_t>(static_cast<uint32_t>(s.tx)) & 0x1fffff) << 41 | kTag << 62;
}

State decode(uint64_t word) {
  State s;
  s.phase = word & 1;
  s.expected = (word >> 1) & kMaxCount;
  s.pending = (word >> 21) & kMaxCount;
  s.tx = static_cast<int32_t>(static_cast<uint32_t>((word >> 41) & 0x1fffff) << 11) >> 11;
  return s;
}

[[noreturn]] void fault(uint32_t address, const std::string& text) {
  throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION,
              fmt::format("mbarrier at shared address {:#x}: {}", address, text));
}

uint8_t* object(Cluster& cluster, uint32_t address, bool write) {
  if (address % 8 != 0) throw_shared_fault(cluster, address, 8, write, false);
  return shared_pointer(cluster, address, 8u, write);
}

State load(Cluster& cluster, uint32_t address, const char* operation, const Warp* warp = nullptr) {
  uint64_t word;
  std::memcpy(&word, object(cluster, address, false), 8);
  if (word >> 62 != kTag) {
    observe(*cluster.grid,
            [&](Observer& o) { o.misuse(cluster, warp, Misuse::BarrierNotInitialised, address, operation); });
    fault(address, fmt::format("{} on memory that is not an initialised mbarrier (word {:#018x}): "
                               "mbarrier.init is missing, came later, or "
                               "the 8 bytes were overwritten",
                               operation, word));
  }
  return decode(word);
}

void store(Cluster& cluster, uint32_t address, const State& state) {
  const uint64_t word = encode(state);
  std::memcpy(object(cluster, address, true), &word, 8);
}

Cta& owner(Cluster& cluster, uint32_t address) { return *cluster.ctas[shared_rank(address)]; }

Cta::BarrierFacts& facts(Cluster& cluster, uint32_t address) {
  return owner(cluster, address).mbarriers[shared_offset(address)];
}

void require_own(const Warp& warp, uint32_t address, const char* operation) {
  if (shared_rank(address) != warp.cta->rank)
    fault(address, fmt::format("{} by CTA rank {} on an object of CTA rank {}: only arrive, expect_tx and "
                               "complete_tx may be remote",
                               operation, warp.cta->rank, shared_rank(address)));
}

// A CTA that has exited has no shared memory any more.
void require_alive(Cluster& cluster, uint32_t address, const std::string& who) {
  const uint32_t rank = shared_rank(address);
  if (rank < cluster.ctas.size() && cluster.ctas[rank]->threads != 0 && cluster.ctas[rank]->live_warps == 0)
    fault(
        address,
        fmt::format(
            "{} reaches CTA rank {}, all of whose threads have exited: end the kernel with a cluster barrier",
            who, rank));
}

// The last few different arrivals of the current phase; equal neighbours (the lanes and warps of one loop)
// are kept once.
void remember(Cta::BarrierFacts& f, std::string who) {
  if (!f.last_arrivals.empty() && f.last_arrivals.back() == who) return;
  if (f.last_arrivals.size() >= 8) f.last_arrivals.erase(f.last_arrivals.begin());
  f.last_arrivals.push_back(std::move(who));
}

std::string name(const Warp& warp) {
  return "cta " + std::to_string(warp.cta->rank) + " warp " + std::to_string(warp.index) + " pc " +
         std::to_string(warp.pc);
}

void add_tx(uint32_t address, State& s, int64_t bytes) {
  const int64_t tx = s.tx + bytes;
  if (tx > kMaxCount || tx < -int64_t{kMaxCount})
    fault(address,
          fmt::format("tx-count {} leaves the range +-{} (it was {}, {} bytes {}): the bytes expected and "
                      "the bytes copied differ",
                      tx, kMaxCount, s.tx, bytes < 0 ? -bytes : bytes, bytes < 0 ? "completed" : "expected"));
  s.tx = static_cast<int32_t>(tx);
}

void take_arrivals(Cluster& cluster, uint32_t address, State& s, uint32_t count, const std::string& who,
                   const Warp* warp = nullptr) {
  if (count == 0 || count > kMaxCount)
    fault(address, fmt::format("an arrival count of {}: 1 to {} are allowed", count, kMaxCount));
  if (count > s.pending) {
    observe(*cluster.grid,
            [&](Observer& o) { o.misuse(cluster, warp, Misuse::TooManyArrivals, address, who); });
    fault(address, fmt::format("{} arrivals by {}, but only {} of {} are pending in phase {}: more arrivals "
                               "than mbarrier.init announced",
                               count, who, s.pending, s.expected, facts(cluster, address).phases));
  }
  s.pending -= count;
}

// PTX ISA 9.7.13.15.5: a phase completes when no arrival is pending and tx-count is zero.
void complete_if_done(Cluster& cluster, uint32_t address, State& s) {
  if (s.pending != 0 || s.tx != 0) return;
  s.phase ^= 1;
  s.pending = s.expected;
  Cta::BarrierFacts& f = facts(cluster, address);
  ++f.phases;
  f.last_arrivals.clear();
  f.expected_bytes = 0;
  ++cluster.epoch;
}

}  // namespace

void mbarrier_init(Warp& warp, uint32_t address, uint32_t count) {
  Cluster& cluster = *warp.cta->cluster;
  require_own(warp, address, "mbarrier.init");
  if (count == 0 || count > kMaxCount)
    fault(address, fmt::format("mbarrier.init with count {}: 1 to {} are allowed", count, kMaxCount));
  store(cluster, address, {0, count, count, 0});
  facts(cluster, address) = {count, warp.pc, 0, {}, 0};
  observe(*cluster.grid, [&](Observer& o) { o.mbarrier_init(warp, address, count); });
  ++cluster.epoch;
}

void mbarrier_inval(Warp& warp, uint32_t address) {
  Cluster& cluster = *warp.cta->cluster;
  require_own(warp, address, "mbarrier.inval");
  load(cluster, address, "mbarrier.inval", &warp);
  observe(*cluster.grid, [&](Observer& o) { o.mbarrier_inval(warp, address); });
  std::memset(object(cluster, address, true), 0xff, 8);
  warp.cta->mbarriers.erase(shared_offset(address));
}

uint64_t mbarrier_arrive(Warp& warp, uint32_t address, uint32_t count, uint32_t expect_tx, bool drop,
                         bool no_complete, Order order) {
  Cluster& cluster = *warp.cta->cluster;
  const bool remote = shared_rank(address) != warp.cta->rank;
  if (remote) require_alive(cluster, address, "mbarrier.arrive");
  if (no_complete) require_own(warp, address, "mbarrier.arrive.noComplete");
  State s = load(cluster, address, "mbarrier.arrive", &warp);
  const uint64_t token = encode(s);
  const std::string who = name(warp);
  add_tx(address, s, expect_tx);
  facts(cluster, address).expected_bytes += expect_tx;
  observe(*cluster.grid, [&](Observer& o) {
    const uint64_t phase = facts(cluster, address).phases;
    if (expect_tx) o.mbarrier_expect(warp, address, expect_tx, phase);
    o.mbarrier_arrive(warp, address, count, phase, order);
  });
  if (drop) {
    if (count > s.expected)
      fault(address, fmt::format("arrive_drop of {} with an expected count of {}", count, s.expected));
    s.expected -= count;
  }
  take_arrivals(cluster, address, s, count, who, &warp);
  if (no_complete && s.pending == 0 && s.tx == 0)
    fault(address, "arrive.noComplete completes the phase, which is undefined (PTX ISA 9.7.13.15.13)");
  remember(facts(cluster, address), who);
  complete_if_done(cluster, address, s);
  store(cluster, address, s);
  return token;
}

void mbarrier_expect_tx(Warp& warp, uint32_t address, uint32_t bytes) {
  Cluster& cluster = *warp.cta->cluster;
  if (shared_rank(address) != warp.cta->rank) require_alive(cluster, address, "mbarrier.expect_tx");
  State s = load(cluster, address, "mbarrier.expect_tx", &warp);
  add_tx(address, s, bytes);
  facts(cluster, address).expected_bytes += bytes;
  observe(*cluster.grid,
          [&](Observer& o) { o.mbarrier_expect(warp, address, bytes, facts(cluster, address).phases); });
  store(cluster, address, s);
}

void mbarrier_complete_tx(Cluster& cluster, uint32_t address, uint32_t bytes, const std::string& who,
                          uint64_t ticket) {
  require_alive(cluster, address, who);
  State s = load(cluster, address, "complete_tx");
  observe(*cluster.grid,
          [&](Observer& o) { o.landed(cluster, ticket, address, bytes, facts(cluster, address).phases); });
  add_tx(address, s, -int64_t{bytes});
  remember(facts(cluster, address), who);
  complete_if_done(cluster, address, s);
  store(cluster, address, s);
}

void mbarrier_add_pending(Cluster& cluster, uint32_t address, uint32_t count, const std::string& who) {
  State s = load(cluster, address, who.c_str());
  if (s.pending + count > kMaxCount)
    fault(address, fmt::format("{} raises the pending count above {}", who, kMaxCount));
  s.pending += count;
  store(cluster, address, s);
}

void mbarrier_arrive_async(Cluster& cluster, uint32_t address, uint32_t count, const std::string& who,
                           uint64_t ticket) {
  require_alive(cluster, address, who);
  State s = load(cluster, address, "an asynchronous arrive");
  observe(*cluster.grid, [&](Observer& o) {
    o.mbarrier_arrive_async(cluster, ticket, address, facts(cluster, address).phases);
  });
  take_arrivals(cluster, address, s, count, who);
  remember(facts(cluster, address), who);
  complete_if_done(cluster, address, s);
  store(cluster, address, s);
}

void mbarrier_arrive_copies(Warp& warp, uint32_t address, uint32_t count) {
  Cluster& cluster = *warp.cta->cluster;
  require_own(warp, address, "cp.async.mbarrier.arrive");
  load(cluster, address, "cp.async.mbarrier.arrive", &warp);
  observe(*cluster.grid,
          [&](Observer& o) { o.mbarrier_arrive_copies(warp, address, facts(cluster, address).phases); });
  if (count) mbarrier_arrive(warp, address, count, 0, false, false, {Semantics::Relaxed, Scope::Cta});
}

bool mbarrier_test_parity(Warp& warp, uint32_t address, uint32_t parity, Order order) {
  Cluster& cluster = *warp.cta->cluster;
  require_own(warp, address, "mbarrier.test_wait/try_wait");
  // Hardware sees bit 0 of the operand only.
  const bool done = load(cluster, address, "mbarrier.test_wait/try_wait", &warp).phase != (parity & 1);
  observe(*cluster.grid, [&](Observer& o) {
    o.mbarrier_test(warp, address, parity & 1, facts(cluster, address).phases, done, order);
  });
  return done;
}

bool mbarrier_test_token(Warp& warp, uint32_t address, uint64_t token, Order order) {
  if (token >> 62 != kTag)
    fault(address, fmt::format("{:#018x} is not a state that mbarrier.arrive returned", token));
  return mbarrier_test_parity(warp, address, decode(token).phase, order);
}

uint32_t mbarrier_pending_count(uint64_t token) { return decode(token).pending; }

std::optional<MbarrierState> mbarrier_state(Cluster& cluster, uint32_t address) {
  uint64_t word;
  std::memcpy(&word, object(cluster, address, false), 8);
  if (word >> 62 != kTag) return std::nullopt;
  const State s = decode(word);
  const Cta::BarrierFacts& f = facts(cluster, address);
  return MbarrierState{s.expected, s.pending, s.tx, f.expected_bytes, f.phases};
}

std::string mbarrier_describe(Cluster& cluster, uint32_t address) {
  uint64_t word;
  std::memcpy(&word, object(cluster, address, false), 8);
  if (word >> 62 != kTag) return "not initialised";
  const State s = decode(word);
  const Cta::BarrierFacts& f = facts(cluster, address);
  const std::string bytes = f.expected_bytes ? fmt::format(" ({} bytes expected, {} arrived)",
                                                           f.expected_bytes, f.expected_bytes - s.tx)
                                             : "";
  return fmt::format("arrivals {}/{}, tx {}{}, phase {}", s.expected - std::min(s.pending, s.expected),
                     s.expected, s.tx, bytes, f.phases);
}

}  // namespace mxfa::emulator
