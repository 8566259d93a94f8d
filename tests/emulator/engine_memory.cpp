// Arena, shared windows and the event queue.
#include "emulator/engine_harness.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

TEST_CASE("fresh device memory is NaN bytes and neighbours are apart by a red zone", "[engine][memory]") {
  Arena arena(1 << 24);
  const uint64_t a = arena.allocate(1000), b = arena.allocate(1000);
  REQUIRE(a % 256 == 0);
  REQUIRE(b >= a + 1000 + Arena::kRedZone);
  for (int i = 0; i < 1000; ++i) REQUIRE(reinterpret_cast<uint8_t*>(a)[i] == 0xff);
  CHECK(arena.contains(a, 1000));
  CHECK(arena.contains(a + 999, 1));
  CHECK_FALSE(arena.contains(a + 999, 2));
  CHECK_FALSE(arena.contains(a - 1, 1));
  CHECK_FALSE(arena.contains(a, ~0ull));
  CHECK(arena.used() == 2000);
  CHECK(has(arena.describe(a + 1016), "is 16 bytes after allocation"));
  CHECK(has(arena.describe(a + 5), "at byte 5 of allocation"));
}

TEST_CASE("released memory is refused, remembered, and comes back poisoned", "[engine][memory]") {
  Arena arena(1 << 24);
  const uint64_t a = arena.allocate(1 << 20);
  std::memset(reinterpret_cast<void*>(a), 0, 1 << 20);
  REQUIRE(arena.contains(a, 4));
  CHECK_FALSE(arena.release(a + 256));
  REQUIRE(arena.release(a));
  CHECK_FALSE(arena.contains(a, 4));
  CHECK(has(arena.describe(a + 64), "released"));
  CHECK(arena.used() == 0);
  const uint64_t b = arena.allocate(1 << 20);
  CHECK(b == a);
  CHECK(reinterpret_cast<uint8_t*>(b)[77] == 0xff);
  CHECK(arena.allocate(1 << 24) == 0);  // more than is left
}

TEST_CASE("many allocations and releases leave one gap", "[engine][memory]") {
  Arena arena(1 << 24);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(arena.allocate(1000 + 37 * i, 1 << (8 + i % 5)));
  for (int i = 0; i < 50; ++i) REQUIRE(blocks[i] % (1u << (8 + i % 5)) == 0);
  for (int i = 0; i < 50; i += 2) REQUIRE(arena.release(blocks[i]));
  for (int i = 1; i < 50; i += 2) REQUIRE(arena.contains(blocks[i], 1000));
  for (int i = 1; i < 50; i += 2) REQUIRE(arena.release(blocks[i]));
  const uint64_t whole = arena.allocate((1 << 24) - 1);
  REQUIRE(whole != 0);
}

TEST_CASE("global and shared accesses name what is wrong", "[engine][memory]") {
  Machine m(2);
  const uint64_t a = m.arena.allocate(64);
  CHECK(global_pointer(m.grid, a + 60, 4, false) == reinterpret_cast<uint8_t*>(a + 60));
  CHECK(has(fault_of([&] { global_pointer(m.grid, a + 64, 4, true); }), "illegal global write of 4 bytes"));
  CHECK(has(fault_of([&] { global_pointer(m.grid, a + 2, 4, false); }), "misaligned global read of 4 bytes"));
  CHECK(has(fault_of([&] { global_pointer(m.grid, kSharedWindow + 2048, 4, false); }),
            "window of shared memory"));
  CHECK(has(fault_of([&] { global_range(m.grid, a + 2, 63, false); }), "illegal global read of 63 bytes"));

  CHECK(shared_pointer(m.cluster, m.address(2048, 1), 4, true) == m.shared(2048, 1));
  CHECK(has(fault_of([&] { shared_pointer(m.cluster, 2u << 24 | 2048, 4, false); }), "CTA rank 2"));
  CHECK(has(fault_of([&] { shared_pointer(m.cluster, 0, 4, false); }), "the system reserves"));
  CHECK(has(fault_of([&] { shared_pointer(m.cluster, 200 * 1024, 4, false); }), "ends at 204800"));
  CHECK(has(fault_of([&] { shared_pointer(m.cluster, 2050, 8, false); }), "misaligned shared read"));
}

TEST_CASE("a queue keeps its order and queue 0 has none", "[engine][events]") {
  EventQueue events;
  Schedule schedule;
  schedule.kind = Schedule::Kind::Random;
  std::string done;
  events.configure(schedule);
  const uint64_t q = tensor_queue(0);
  events.submit(q, "a", [&] { done += 'a'; });
  events.submit(q, "b", [&] { done += 'b'; });
  events.submit(0, "x", [&] { done += 'x'; });
  events.submit(0, "y", [&] { done += 'y'; });
  CHECK(done.empty());
  CHECK(events.fire_one(2));  // legal: a, x, y
  CHECK(done == "y");
  events.drain(q);
  CHECK(done == "yab");
  CHECK(events.describe() == std::vector<std::string>{"#3 x"});
  CHECK(events.fire_one(5));
  CHECK_FALSE(events.fire_one(0));
  CHECK(done == "yabx");

  schedule.kind = Schedule::Kind::Functional;
  events.configure(schedule);
  events.submit(q, "c", [&] { done += 'c'; });
  CHECK(done == "yabxc");
}

TEST_CASE("a fault of late work names the work", "[engine][events]") {
  EventQueue events;
  events.configure({Schedule::Kind::Lazy, 0});
  events.submit(0, "the copy", [] { throw Fault(700, "bad address"); });
  CHECK(fault_of([&] { events.fire_one(); }) == "in the copy: bad address");
}
