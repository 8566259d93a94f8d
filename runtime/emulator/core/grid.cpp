// run_grid: clusters one after another, all CTAs of a cluster at once.  Fresh registers, shared and local
// memory hold 0xff, which is NaN in every float format and an absurd index.
#include "core/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "core/independence.hpp"
#include "core/kernel.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "core/scheduler.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {

const Kernel* find_lowered_kernel(const Module& module, const KernelInfo& info);

namespace {

constexpr uint32_t kPatience = 300;          // polling rounds until a cluster is parked
constexpr uint32_t kHurry = 4;               // the same where clusters take turns, as long as some go on
constexpr std::ptrdiff_t kTakingTurns = 4;   // clusters that a randomised schedule runs by turns ...
constexpr uint64_t kTurnExponents = 12;      // ... of a random power of two below this
constexpr uint64_t kMaxShuffled = 1u << 20;  // clusters; larger grids start in order
constexpr uint32_t kIdleCycles = 64;  // turns of all parked clusters without any change that count as a hang

void check_launch(const Launch& launch, const Kernel& kernel, const DeviceModel& device) {
  const auto fail = [&](const std::string& text) {
    throw Fault(result::kInvalidValue, fmt::format("launch of {}: {}", kernel.info.name, text));
  };
  const Dim3 g = launch.grid, b = launch.block, c = launch.cluster;
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || !c.x || !c.y || !c.z)
    fail("a grid, block or cluster dimension is 0");
  const uint64_t threads = uint64_t{b.x} * b.y * b.z;
  if (threads > kernel.info.max_threads)
    fail(fmt::format("{} threads per block, the kernel allows {}", threads, kernel.info.max_threads));
  if (g.x % c.x || g.y % c.y || g.z % c.z) fail("the grid is no multiple of the cluster");
  const uint64_t shared = uint64_t{kernel.static_shared} + launch.dynamic_shared;
  if (shared > device.shared_per_block_optin)
    fail(fmt::format("{} bytes of shared memory, the device has {}", shared, device.shared_per_block_optin));
  if (launch.parameters.size() < kernel.info.parameter_bytes)
    fail(fmt::format("{} bytes of parameters, the kernel has {}", launch.parameters.size(),
                     kernel.info.parameter_bytes));
}

void add(Counters& sum, const Counters& c) {
  sum.warp_instructions += c.warp_instructions;
  sum.lane_instructions += c.lane_instructions;
  sum.mma_instructions += c.mma_instructions;
  sum.mma_macs += c.mma_macs;
  sum.tma_bytes += c.tma_bytes;
  sum.bulk_bytes += c.bulk_bytes;
}

class GridRun {
 public:
  GridRun(const Launch& launch, const Kernel& kernel, const DeviceModel& device, Arena& arena)
      : launch_(launch), kernel_(kernel), device_(device) {
    grid_.arena = &arena;
    grid_.device = &device;
    grid_.kernel = &kernel;
    grid_.size = launch.grid;
    grid_.block = launch.block;
    grid_.cluster = launch.cluster;
    grid_.explicit_cluster = uint64_t{launch.cluster.x} * launch.cluster.y * launch.cluster.z > 1 ||
                             kernel.info.required_cluster.x;
    grid_.dynamic_shared = launch.dynamic_shared;
    grid_.schedule = launch.schedule;
    grid_.instruction_limit = launch.instruction_limit;
    grid_.random = Random(launch.schedule.seed);
    grid_.parameters = launch.parameters;
    grid_.observers = launch.observers;
    const Dim3 c = launch.cluster;
    clusters_ = {launch.grid.x / c.x, launch.grid.y / c.y, launch.grid.z / c.z};
    grid_.clusters = uint64_t{clusters_.x} * clusters_.y * clusters_.z;
  }

  Counters run() {
    try {
      run_clusters({});
    } catch (...) {
      flush();
      throw;
    }
    flush();
    return grid_.counters;
  }

  // The same with clusters on several threads, each of which has a Grid of its own.  The fault of the lowest
  // cluster counts.  A cluster that polls is finished afterwards, with the others that do.
  static Counters run_threads(const Launch& launch, const Kernel& kernel, const DeviceModel& device,
                              Arena& arena, unsigned threads) {
    std::vector<std::unique_ptr<GridRun>> workers;
    for (unsigned k = 0; k < threads; ++k)
      workers.push_back(std::make_unique<GridRun>(launch, kernel, device, arena));
    std::atomic<uint64_t> next{0}, failed{UINT64_MAX};
    std::mutex mutex;
    std::exception_ptr fault;
    const auto work = [&](GridRun& g) {
      _mm_setcsr(kModeDefault);
      for (uint64_t index; (index = next++) < std::min(g.grid_.clusters, failed.load());) try {
          g.run_or_park(index);
        } catch (...) {
          std::lock_guard lock(mutex);
          if (index < failed) failed = index, fault = std::current_exception();
        }
    };
    {
      std::vector<std::jthread> others;
      for (unsigned k = 1; k < threads; ++k) others.emplace_back([&, k] { work(*workers[k]); });
      work(*workers[0]);
    }
    if (fault) std::rethrow_exception(fault);
    GridRun& first = *workers[0];
    first.grid_.next_cluster = first.grid_.clusters;
    std::vector<std::unique_ptr<Resident>> parked;
    for (auto& w : workers)
      for (auto& r : w->parked_) parked.push_back(std::move(r));
    std::sort(parked.begin(), parked.end(), [](const auto& a, const auto& b) { return a->index < b->index; });
    first.run_clusters(std::move(parked));
    Counters sum;
    for (auto& w : workers) add(sum, w->grid_.counters);
    return sum;
  }

 private:
  struct Resident {
    uint64_t index = 0;
    Cluster cluster;
    std::unique_ptr<Scheduler> scheduler;
    uint64_t stamp = 0;
  };

  void flush() {
    std::fputs(grid_.printf_output.c_str(), stdout);
    std::fflush(stdout);
    grid_.printf_output.clear();
  }

  // Clusters run one after another.  One that only polls, say for a flag in global memory, is parked and the
  // next one starts, up to what the device could hold at once; parked ones get their turn again and again.
  // So does a randomised schedule with one that does not poll, after a while: programs that hand out work as
  // they go would otherwise give it all to the first.
  void run_clusters(std::vector<std::unique_ptr<Resident>> parked) {
    const Dim3 c = launch_.cluster;
    const uint64_t total = grid_.clusters;
    const uint64_t room = std::max<uint64_t>(1, static_cast<uint64_t>(device_.sm_count) / (c.x * c.y * c.z));
    uint64_t& next = grid_.next_cluster;  // cluster launch control takes from it too
    uint32_t idle_cycles = 0;
    shuffle_clusters(total, room);
    const bool turns = launch_.schedule.randomised() && total > 1;
    const auto run = [&](Resident& r) {
      return this->run(r, turns && idle_cycles == 0 ? kHurry : kPatience,
                       turns ? 1ull << grid_.random() % kTurnExponents : UINT64_MAX);
    };
    while (next < total || !parked.empty()) {
      bool changed = false;
      for (auto& r : parked) {
        if (run(*r)) r.reset();
        changed = changed || !r || r->stamp != r->scheduler->stamp();
        if (r) r->stamp = r->scheduler->stamp();
      }
      std::erase(parked, nullptr);
      const auto going =
          std::count_if(parked.begin(), parked.end(), [](const auto& r) { return !r->scheduler->polls(); });
      for (auto left = kTakingTurns - going; next < total && parked.size() < room && left > 0;) {
        auto r = start(grid_.cluster_at(next++));
        changed = true;
        if (!run(*r)) {
          r->stamp = r->scheduler->stamp();
          left -= !r->scheduler->polls();
          parked.push_back(std::move(r));
        } else if (!parked.empty()) {
          break;  // something may have been released
        }
      }
      idle_cycles = changed ? 0 : idle_cycles + 1;
      if (idle_cycles >= kIdleCycles) parked.front()->scheduler->report_livelock();
    }
  }

  // PTX promises no order of clusters, but programs rely on the device not starting one while earlier ones
  // wait for room: only those that fit at once change places.
  void shuffle_clusters(uint64_t total, uint64_t room) {
    if (!launch_.schedule.randomised() || total > kMaxShuffled) return;
    grid_.order.resize(total);
    for (uint64_t k = 0; k < total; ++k) grid_.order[k] = static_cast<uint32_t>(k);
    for (uint64_t first = 0; first < total; first += room)
      for (uint64_t left = std::min(room, total - first); left > 1; --left)
        std::swap(grid_.order[first + left - 1], grid_.order[first + grid_.random() % left]);
  }

  void run_or_park(uint64_t index) {
    auto r = start(index);
    if (!run(*r, kPatience, UINT64_MAX)) r->stamp = r->scheduler->stamp(), parked_.push_back(std::move(r));
  }

  std::unique_ptr<Resident> start(uint64_t index) {
    const Dim3 c = launch_.cluster, id{static_cast<uint32_t>(index % clusters_.x),
                                       static_cast<uint32_t>(index / clusters_.x % clusters_.y),
                                       static_cast<uint32_t>(index / clusters_.x / clusters_.y)};
    auto r = std::make_unique<Resident>();
    r->index = index;
    Cluster& cluster = r->cluster;
    cluster.grid = &grid_;
    cluster.id = id;
    cluster.events.configure(launch_.schedule);
    for (uint32_t z = 0; z < c.z; ++z)
      for (uint32_t y = 0; y < c.y; ++y)
        for (uint32_t x = 0; x < c.x; ++x) {
          const auto rank = static_cast<uint32_t>(cluster.ctas.size());
          std::unique_ptr<Cta> cta = std::make_unique<Cta>();
          if (!spare_.empty()) {
            cta = std::move(spare_.back());
            spare_.pop_back();
          }
          prepare(*cta, cluster, rank, {id.x * c.x + x, id.y * c.y + y, id.z * c.z + z});
          cluster.ctas.push_back(std::move(cta));
        }
    r->scheduler = std::make_unique<Scheduler>(grid_, cluster);
    observe(grid_, [&](Observer& o) { o.cluster_begins(cluster); });
    return r;
  }

  // True when the cluster has ended; its CTAs are kept for the next one.
  bool run(Resident& r, uint32_t patience, uint64_t turn) {
    try {
      if (!r.scheduler->run(patience, turn)) return false;
    } catch (const Fault& f) {
      const std::string text = f.what();
      // Asynchronous work fails without an instruction to blame.
      if (text.find(kernel_.info.name) != std::string::npos) throw;
      const Dim3 id = r.cluster.id;
      throw Fault(f.code, fmt::format("{}\n  in asynchronous work of kernel {}, cluster ({}, {}, {})", text,
                                      kernel_.info.name, id.x, id.y, id.z));
    }
    observe(grid_, [&](Observer& o) { o.cluster_ends(r.cluster); });
    for (auto& cta : r.cluster.ctas) spare_.push_back(std::move(cta));
    return true;
  }

  // A CTA as new; its large buffers are kept from the cluster before.
  void prepare(Cta& old, Cluster& cluster, uint32_t rank, Dim3 id) {
    Cta cta;
    cta.shared = std::move(old.shared);
    cta.register_file = std::move(old.register_file);
    cta.predicate_file = std::move(old.predicate_file);
    cta.local_memory = std::move(old.local_memory);
    cta.tensor_memory = std::move(old.tensor_memory);
    cta.cluster = &cluster;
    cta.rank = rank;
    cta.id = id;
    cta.index = id.x + launch_.grid.x * (id.y + launch_.grid.y * id.z);
    const Dim3 b = launch_.block;
    cta.threads = b.x * b.y * b.z;
    const uint32_t warps = (cta.threads + kLanes - 1) / kLanes;
    cta.live_warps = warps;
    const uint32_t fixed = kernel_.program->shared_reserved + kernel_.static_shared,
                   alignment = kernel_.dynamic_alignment;
    cta.shared_size = launch_.dynamic_shared
                          ? ((fixed + alignment - 1) & ~(alignment - 1)) + launch_.dynamic_shared
                          : fixed;
    cta.shared.assign(cta.shared_size + 1024, 0xff);
    cta.shared_base =
        cta.shared.data() + ((1024 - reinterpret_cast<uintptr_t>(cta.shared.data()) % 1024) % 1024);
    cta.register_file.resize(size_t{kernel_.rows} * warps + 1);
    std::memset(cta.register_file.data(), 0xff, cta.register_file.size() * sizeof(Row));
    cta.predicate_file.assign(size_t{kernel_.predicates} * warps + 1, 0xffffffffu);
    cta.local_memory.assign(size_t{kernel_.local_bytes} * warps * kLanes, 0xff);
    if (device_.tensor_memory) {
      if (!cta.tensor_memory)
        cta.tensor_memory = std::make_unique<TensorMemory>();
      else
        *cta.tensor_memory = TensorMemory();
    }
    cta.warps.resize(warps);
    for (uint32_t w = 0; w < warps; ++w) {
      Warp& warp = cta.warps[w];
      warp.index = w;
      const uint32_t here = std::min<uint32_t>(kLanes, cta.threads - w * kLanes);
      warp.alive = warp.existing = here == kLanes ? kFullMask : (1u << here) - 1;
      warp.registers_per_thread = kernel_.info.registers;
      warp.rows = cta.register_file.data() + size_t{kernel_.rows} * w;
      warp.predicates = cta.predicate_file.data() + size_t{kernel_.predicates} * w;
      warp.local = cta.local_memory.data() + size_t{kernel_.local_bytes} * w * kLanes;
      warp.local_bytes = kernel_.local_bytes;
      Fragment f;
      f.pc = kernel_.start;
      f.mask = warp.alive;
      warp.fragments.push_back(std::move(f));
    }
    old = std::move(cta);
    for (Warp& w : old.warps) w.cta = &old;
  }

  const Launch& launch_;
  const Kernel& kernel_;
  const DeviceModel& device_;
  Grid grid_;
  Dim3 clusters_;
  std::vector<std::unique_ptr<Cta>> spare_;
  std::vector<std::unique_ptr<Resident>> parked_;  // of run_threads
};

}  // namespace

Counters run_grid(const Launch& launch, const DeviceModel& device, Arena& arena) {
  const Kernel* kernel = find_lowered_kernel(*launch.module, *launch.kernel);
  if (!kernel) throw Fault(result::kInvalidValue, "the kernel does not belong to the module");
  check_launch(launch, *kernel, device);
  // The caller may compute with other rounding or flush modes; the interpreter starts from the standard ones.
  struct HostMode {
    unsigned saved = _mm_getcsr();
    HostMode() { _mm_setcsr(kModeDefault); }
    ~HostMode() { _mm_setcsr(saved); }
  } host_mode;
  const uint64_t clusters = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z /
                            (uint64_t{launch.cluster.x} * launch.cluster.y * launch.cluster.z);
  if (clusters > 1 && launch.schedule.kind == Schedule::Kind::Functional && launch.observers.empty()) {
    const auto threads = static_cast<unsigned>(std::min<uint64_t>(threads_for_clusters(), clusters));
    if (threads > 1 && clusters_are_independent(*kernel))
      return GridRun::run_threads(launch, *kernel, device, arena, threads);
  }
  return GridRun(launch, *kernel, device, arena).run();
}

}  // namespace mxfa::emulator
