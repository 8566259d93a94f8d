// What each mbarrier has been through, and the findings about it.
#include "checks/barriers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/kernel.hpp"

namespace mxfa::emulator {

void Barriers::cluster_begins(Cluster& cluster) {
  program_ = cluster.grid->kernel->program;
  lives_[&cluster];
}

// Arrivals that nobody waits for are no mistake; bytes announced and never copied, or the reverse, are.
void Barriers::cluster_ends(Cluster& cluster) {
  for (const auto& [mbarrier, life] : lives_[&cluster].list) {
    if (life.state != Life::State::Live || life.bytes == 0) continue;
    const bool few = life.bytes > 0;
    const Site& site = life.expected ? life.expect : life.init;
    findings_.add("mbarrier-bytes-at-exit", Severity::Error, site.pc, life.init.pc, [&] {
      return fmt::format(
          "  {}\n{}\n{}\n  missing: the kernel has ended, and {} bytes {}\n  remedy: announce with "
          "expect_tx, "
          "in every phase, the bytes that the copies of this phase bring",
          name(cluster, mbarrier), describe_site(*program_, "mbarrier.init", life.init),
          life.expected ? describe_site(*program_, "last expect_tx", life.expect) : "  no expect_tx",
          few ? life.bytes : -life.bytes,
          few ? "that its current phase expects were never copied"
              : "were copied in its current phase that nothing has announced");
    });
  }
  lives_.erase(&cluster);
}

Barriers::Life* Barriers::find(Cluster& cluster, uint32_t mbarrier) {
  auto& list = lives_[&cluster].list;
  const auto found = list.find(mbarrier);
  return found == list.end() ? nullptr : &found->second;
}

std::string Barriers::name(const Cluster& cluster, uint32_t mbarrier) const {
  const uint32_t rank = shared_rank(mbarrier), offset = shared_offset(mbarrier);
  return fmt::format("mbarrier in shared memory of cta {}, offset {:#x}{}", rank, offset,
                     rank < cluster.ctas.size() ? shared_name(*program_, *cluster.ctas[rank], offset) : "");
}

void Barriers::misuse(Cluster& cluster, const Warp* warp, Misuse misuse, uint32_t where,
                      const std::string& who) {
  const Life* life = find(cluster, where);
  const Site site = warp ? Site::of(*warp) : life ? life->init : Site{};
  const auto second = [&] {
    return warp ? describe_site(*program_, who, site) : "  " + who + " (asynchronous)";
  };
  if (misuse == Misuse::TooManyArrivals) {
    findings_.add("mbarrier-over-arrival", Severity::Error, site.pc, life ? life->init.pc : 0, [&] {
      std::string text = "  " + name(cluster, where);
      if (life) text += "\n" + describe_site(*program_, fmt::format("init for {}", life->count), life->init);
      if (life && life->arrived) text += "\n" + describe_site(*program_, "arrival before", life->arrival);
      return text + "\n" + (warp ? describe_site(*program_, "arrival", site) : second()) +
             "\n  missing: the pending count of the phase would fall below zero\n  remedy: let as many "
             "threads arrive in a phase as mbarrier.init has announced, or announce more";
    });
    return;
  }
  if (misuse != Misuse::BarrierNotInitialised) return;
  if (life && life->state == Life::State::Overwritten) return;  // has been reported
  findings_.add("mbarrier-not-initialised", Severity::Error, site.pc, life ? life->end.pc : 0, [&] {
    std::string text = "  " + name(cluster, where);
    const bool ended = life && life->state == Life::State::Invalid;
    if (life)
      text +=
          "\n" + describe_site(*program_, ended ? "mbarrier.inval" : "init", ended ? life->end : life->init);
    return text + "\n" + second() +
           (ended ? "\n  missing: the mbarrier has been invalidated\n  remedy: mbarrier.init it again before "
                    "this use, or let the last user wait before mbarrier.inval"
            : life
                ? "\n  missing: its 8 bytes are no mbarrier any more\n  remedy: keep data away from it, or "
                  "mbarrier.inval it first and mbarrier.init it again"
                : "\n  missing: no mbarrier.init came before the use\n  remedy: mbarrier.init by one "
                  "thread, then a barrier (bar.sync; in a cluster fence.mbarrier_init and a cluster "
                  "barrier) before the first use");
  });
}

void Barriers::mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t count) {
  Lives& lives = lives_[warp.cta->cluster];
  const Site site = Site::of(warp);
  for (auto it = lives.list.lower_bound(mbarrier < 7 ? 0 : mbarrier - 7);
       it != lives.list.end() && it->first < mbarrier + 8; ++it) {
    const Life& old = it->second;
    if (old.state != Life::State::Live) continue;
    findings_.add("mbarrier-init-twice", Severity::Error, site.pc, old.init.pc, [&] {
      return fmt::format(
          "  {}\n{}\n{}\n  missing: the mbarrier is still valid when it is initialised again\n  remedy: "
          "mbarrier.inval before the second mbarrier.init, once everybody has done their last wait",
          name(*warp.cta->cluster, mbarrier), describe_site(*program_, "first mbarrier.init", old.init),
          describe_site(*program_, "second mbarrier.init", site));
    });
  }
  lives.list[mbarrier] = {};
  Life& life = lives.list[mbarrier];
  life.init = site;
  life.count = count;
  lives.low = std::min(lives.low, shared_offset(mbarrier));
  lives.high = std::max(lives.high, shared_offset(mbarrier) + 8);
}

void Barriers::mbarrier_inval(Warp& warp, uint32_t mbarrier) {
  Cluster& cluster = *warp.cta->cluster;
  Life* life = find(cluster, mbarrier);
  if (!life) return;
  life->state = Life::State::Invalid;
  life->end = Site::of(warp);
  for (const auto& cta : cluster.ctas)
    for (const Warp& other : cta->warps)
      for (const Fragment& f : other.fragments) {
        if (!f.mask || f.wait.kind != Wait::Kind::Mbarrier || f.wait.address != mbarrier) continue;
        const Site waiter{f.pc, cta->rank, other.index, static_cast<uint32_t>(std::countr_zero(f.mask))};
        findings_.add("mbarrier-inval-with-waiters", Severity::Error, life->end.pc, f.pc, [&] {
          return fmt::format(
              "  {}\n{}\n{}\n  missing: the wait is not over when the mbarrier is invalidated\n  remedy: a "
              "barrier after the last wait of every thread, before mbarrier.inval",
              name(cluster, mbarrier), describe_site(*program_, "wait", waiter),
              describe_site(*program_, "mbarrier.inval", life->end));
        });
      }
}

void Barriers::mbarrier_expect(Warp& warp, uint32_t mbarrier, uint32_t bytes, uint64_t) {
  Life* life = find(*warp.cta->cluster, mbarrier);
  if (!life) return;
  life->bytes += bytes;
  life->expect = Site::of(warp);
  life->expected = true;
}

void Barriers::mbarrier_arrive(Warp& warp, uint32_t mbarrier, uint32_t, uint64_t, Order) {
  Life* life = find(*warp.cta->cluster, mbarrier);
  if (!life) return;
  life->arrival = Site::of(warp);
  life->arrived = true;
}

void Barriers::landed(Cluster& cluster, uint64_t, uint32_t mbarrier, uint32_t bytes, uint64_t) {
  if (Life* life = find(cluster, mbarrier)) life->bytes -= bytes;
}

void Barriers::access(Warp& warp, const LaneAccess& a) {
  if (a.space != MemorySpace::Shared || a.kind == AccessKind::Read) return;
  const Lives& lives = lives_[warp.cta->cluster];
  for (uint32_t m = a.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const auto address = static_cast<uint32_t>(a.address[lane]);
    const uint32_t offset = shared_offset(address);
    if (offset >= lives.high || offset + a.bytes <= lives.low) continue;
    Site site = Site::of(warp);
    site.lane = static_cast<uint32_t>(lane);
    written(*warp.cta->cluster, address, a.bytes, site, "write");
  }
}

void Barriers::issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) {
  const Lives& lives = lives_[warp.cta->cluster];
  for (const Touch& t : touches) {
    if (t.space != MemorySpace::Shared || t.kind == AccessKind::Read) continue;
    if (t.begin >= lives.high || t.begin + t.count <= lives.low) continue;
    Site site = Site::of(warp);
    if (work.lane >= 0) site.lane = static_cast<uint32_t>(work.lane);
    written(*warp.cta->cluster, t.rank << kRankShift | static_cast<uint32_t>(t.begin), t.count, site,
            "write by an asynchronous copy");
  }
}

void Barriers::written(Cluster& cluster, uint32_t address, uint32_t bytes, const Site& site,
                       const char* how) {
  auto& list = lives_[&cluster].list;
  for (auto it = list.lower_bound(address < 7 ? 0 : address - 7);
       it != list.end() && it->first < address + bytes; ++it) {
    Life& life = it->second;
    if (life.state != Life::State::Live) continue;
    life.state = Life::State::Overwritten;
    life.end = site;
    findings_.add("mbarrier-overwritten", Severity::Error, site.pc, life.init.pc, [&] {
      return fmt::format(
          "  {}\n{}\n{}\n  missing: the mbarrier is still valid when other data is written over its 8 bytes\n"
          "  remedy: mbarrier.inval after its last wait and before the memory is used for something else "
          "(or keep them apart)",
          name(cluster, it->first), describe_site(*program_, "mbarrier.init", life.init),
          describe_site(*program_, how, site));
    });
  }
}

}  // namespace mxfa::emulator
