// One-dimensional bulk copies, reductions and bulk groups.
#include "emulator/engine_harness.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

namespace {

BulkCopy copy_of(uint64_t global, uint32_t shared, uint32_t bytes, uint32_t mbarrier = 0) {
  BulkCopy copy;
  copy.global = global, copy.shared = shared, copy.bytes = bytes, copy.mbarrier = mbarrier;
  return copy;
}

}  // namespace

TEST_CASE("bulk load counts its bytes and store writes them back", "[engine][bulk]") {
  Machine m;
  const uint64_t a = m.arena.allocate(512), b = m.arena.allocate(512);
  for (int i = 0; i < 512; ++i) reinterpret_cast<uint8_t*>(a)[i] = static_cast<uint8_t>(i * 3);
  mbarrier_init(m.warp(), 1024, 1);
  bulk_load(m.warp(), 0, copy_of(a + 16, 2064, 480, 1024));
  mbarrier_arrive(m.warp(), 1024, 1, 480, false, false);
  CHECK(mbarrier_test_parity(m.warp(), 1024, 0));
  CHECK(std::memcmp(m.shared(2064), reinterpret_cast<void*>(a + 16), 480) == 0);
  CHECK(*m.shared(2063) == 0xff);
  bulk_store(m.warp(), 0, copy_of(b, 2064, 480));
  CHECK(std::memcmp(reinterpret_cast<void*>(b), reinterpret_cast<void*>(a + 16), 480) == 0);
  CHECK(reinterpret_cast<uint8_t*>(b)[480] == 0xff);
  BulkCopy masked = copy_of(b, 2064, 32);
  std::memset(m.shared(2064), 0, 32);
  masked.byte_mask = 0x8001;
  bulk_store(m.warp(), 0, masked);
  for (int i = 0; i < 32; ++i)
    CHECK(reinterpret_cast<uint8_t*>(b)[i] ==
          (i % 16 == 0 || i % 16 == 15 ? 0 : reinterpret_cast<uint8_t*>(a)[16 + i]));
}

TEST_CASE("a bulk group is read before it is written, and waits tell them apart", "[engine][bulk]") {
  Machine m(1, Schedule::Kind::Lazy);
  const uint64_t g = m.arena.allocate(64);
  std::memset(m.shared(2048), 1, 32);
  CHECK(bulk_wait(m.warp(), 5, 0, false));  // nothing was ever committed
  bulk_store(m.warp(), 5, copy_of(g, 2048, 16));
  CHECK(bulk_wait(m.warp(), 5, 0, false));  // an uncommitted copy is in no group
  bulk_commit(m.warp(), 5);
  bulk_store(m.warp(), 5, copy_of(g + 16, 2064, 16));
  bulk_commit(m.warp(), 5);
  CHECK_FALSE(bulk_wait(m.warp(), 5, 1, true));
  CHECK(bulk_wait(m.warp(), 5, 2, false));
  CHECK(bulk_wait(m.warp(), 4, 0, false));  // groups belong to a thread
  const uint64_t epoch = m.cluster.epoch;
  m.cluster.events.fire_one();  // first copy reads
  CHECK(m.cluster.epoch > epoch);
  CHECK(bulk_wait(m.warp(), 5, 1, true));
  CHECK_FALSE(bulk_wait(m.warp(), 5, 1, false));
  std::memset(m.shared(2048), 2, 32);  // legal for the first source, a race with the second
  CHECK(reinterpret_cast<uint8_t*>(g)[0] == 0xff);
  m.fire_all();
  CHECK(reinterpret_cast<uint8_t*>(g)[0] == 1);
  CHECK(reinterpret_cast<uint8_t*>(g)[16] == 2);  // the missing wait shows
  CHECK(bulk_wait(m.warp(), 5, 0, false));
  bulk_commit(m.warp(), 5);  // an empty group is complete
  CHECK(bulk_wait(m.warp(), 5, 0, false));
}

TEST_CASE("bulk reductions follow their element types", "[engine][bulk]") {
  Machine m;
  const uint64_t g = m.arena.allocate(64);
  const auto reduce = [&](ReduceOp op, ReduceType type, auto value, auto operand) {
    for (int i = 0; i < 16 / static_cast<int>(sizeof(value)); ++i) {
      std::memcpy(reinterpret_cast<uint8_t*>(g) + i * sizeof(value), &value, sizeof(value));
      std::memcpy(m.shared(2048) + i * sizeof(value), &operand, sizeof(value));
    }
    BulkCopy copy = copy_of(g, 2048, 16);
    copy.reduce = op, copy.type = type;
    bulk_store(m.warp(), 0, copy);
    decltype(value) result;
    std::memcpy(&result, reinterpret_cast<uint8_t*>(g) + 16 - sizeof(value), sizeof(value));
    return result;
  };
  CHECK(reduce(ReduceOp::Add, ReduceType::F32, 1.5f, 2.25f) == 3.75f);
  CHECK(reduce(ReduceOp::Add, ReduceType::F32, 0x1p-130f, 1.0f) == 1.0f);
  CHECK(reduce(ReduceOp::Add, ReduceType::F32, 0x1p-127f, 0x1p-127f) == 0.0f);  // subnormals flush
  CHECK(reduce(ReduceOp::Add, ReduceType::F64, 1.0, 0x1p-52) == 1.0 + 0x1p-52);
  CHECK(reduce(ReduceOp::Add, ReduceType::BF16, uint16_t{0x3f80}, uint16_t{0x3b80}) ==
        0x3f80);  // 1 + 2^-8: tie to even
  CHECK(reduce(ReduceOp::Add, ReduceType::BF16, uint16_t{0x3f81}, uint16_t{0x3b80}) == 0x3f82);
  CHECK(reduce(ReduceOp::Add, ReduceType::F16, uint16_t{0x3c00}, uint16_t{0x1000}) ==
        0x3c00);  // 1 + 2^-11: tie to even
  CHECK(reduce(ReduceOp::Add, ReduceType::F16, uint16_t{0x7bff}, uint16_t{0x7bff}) == 0x7c00);
  CHECK(reduce(ReduceOp::Add, ReduceType::F16, uint16_t{0x0001}, uint16_t{0x0001}) ==
        0x0002);  // subnormals stay
  CHECK(reduce(ReduceOp::Max, ReduceType::BF16, uint16_t{0x7fff}, uint16_t{0xbf80}) ==
        0xbf80);  // a NaN loses
  CHECK(reduce(ReduceOp::Min, ReduceType::S32, int32_t{-5}, int32_t{3}) == -5);
  CHECK(reduce(ReduceOp::Min, ReduceType::U32, uint32_t{0xfffffffb}, uint32_t{3}) == 3);
  CHECK(reduce(ReduceOp::Inc, ReduceType::U32, uint32_t{7}, uint32_t{7}) == 0);
  CHECK(reduce(ReduceOp::Dec, ReduceType::U32, uint32_t{0}, uint32_t{9}) == 9);
  CHECK(reduce(ReduceOp::Xor, ReduceType::U64, uint64_t{0xf0f0}, uint64_t{0xffff}) == 0x0f0f);
  CHECK(has(fault_of([&] { reduce(ReduceOp::Min, ReduceType::F32, 1.0f, 2.0f); }),
            "reduction min does not exist for type f32"));
}

TEST_CASE("a copy between CTAs signals the destination's barrier", "[engine][bulk]") {
  Machine m(2, Schedule::Kind::Lazy);
  mbarrier_init(m.warp(0, 1), m.address(1024, 1), 1);
  std::memset(m.shared(4096, 0), 0x44, 64);
  BulkCopy copy;
  copy.shared = m.address(2048, 1), copy.shared_source = m.address(4096, 0), copy.bytes = 64,
  copy.mbarrier = m.address(1024, 1);
  bulk_shared_to_cluster(m.warp(0, 0), 0, copy);
  CHECK(*m.shared(2048, 1) == 0xff);
  mbarrier_arrive(m.warp(0, 1), m.address(1024, 1), 1, 64, false, false);
  m.fire_all();
  CHECK(*m.shared(2048 + 63, 1) == 0x44);
  CHECK(mbarrier_test_parity(m.warp(0, 1), m.address(1024, 1), 0));
  copy.mbarrier = m.address(1024, 0);
  CHECK(has(fault_of([&] { bulk_shared_to_cluster(m.warp(0, 0), 0, copy); }), "different CTAs"));
}

TEST_CASE("misuse of bulk copies is refused by name", "[engine][bulk]") {
  Machine m;
  const uint64_t g = m.arena.allocate(64);
  mbarrier_init(m.warp(), 1024, 1);
  CHECK(has(fault_of([&] { bulk_load(m.warp(), 0, copy_of(g + 8, 2048, 16, 1024)); }), "global address"));
  CHECK(has(fault_of([&] { bulk_load(m.warp(), 0, copy_of(g, 2056, 16, 1024)); }), "shared address"));
  CHECK(has(fault_of([&] { bulk_load(m.warp(), 0, copy_of(g, 2048, 24, 1024)); }), "24 bytes"));
  CHECK(has(fault_of([&] { bulk_load(m.warp(), 0, copy_of(g, 2048, 80, 1024)); }),
            "illegal global read of 80 bytes"));
  CHECK(has(fault_of([&] { bulk_store(m.warp(), 0, copy_of(g + 48, 2048, 32)); }),
            "illegal global write of 32 bytes"));
}
