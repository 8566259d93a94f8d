// Tensor memory: who may allocate, and which word every register of a load or store means.
#include <nlohmann/json.hpp>

#include "emulator/engine_harness.hpp"
#include "support/vectors.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;
using mxfa::reference::load_vectors;
using nlohmann::json;

namespace {

TmemShape shape_of(const std::string& name) {
  return name == "32x32b"    ? TmemShape::S32x32b
         : name == "16x64b"  ? TmemShape::S16x64b
         : name == "16x128b" ? TmemShape::S16x128b
                             : TmemShape::S16x256b;
}

struct Registers {
  std::vector<Row> rows;
  std::vector<Row*> pointers;
  explicit Registers(int count) : rows(static_cast<size_t>(count)) {
    for (Row& row : rows) {
      std::memset(&row, 0xee, sizeof(row));
      pointers.push_back(&row);
    }
  }
  std::vector<const Row*> sources() const { return {pointers.begin(), pointers.end()}; }
};

// Every word says where it is.
uint32_t tag(uint32_t lane, uint32_t column) { return lane << 16 | column; }

void fill(TensorMemory& tmem) {
  for (uint32_t lane = 0; lane < 128; ++lane)
    for (uint32_t column = 0; column < 512; ++column) tmem.word(lane, column) = tag(lane, column);
}

uint32_t allocate(Machine& m, uint32_t columns) {
  REQUIRE(tcgen05_alloc(m.warp(), 1024, columns, 1));
  uint32_t base;
  std::memcpy(&base, m.shared(1024), 4);
  return base;
}

int registers_of(const std::string& shape, int num) {
  return shape == "16x128b" ? 2 * num : shape == "16x256b" ? 4 * num : num;
}

}  // namespace

TEST_CASE("tcgen05.ld and st agree with the published fragment tables", "[engine][tmem]") {
  Machine m;
  allocate(m, 512);
  TensorMemory& tmem = *m.cta().tensor_memory;
  for (const json& v : load_vectors("blackwell_isa.json")["tmem_ldst"]) {
    const std::string shape = v["shape"];
    const int num = v["num"], count = registers_of(shape, num);
    const uint32_t t = v["thread"], r = v["reg"], lane = v["lane"], column = v["col"],
                   low = v["packed_cols"][0], high = v["packed_cols"][1];
    const uint32_t base = shape == "32x32b" ? 0 : 16;
    for (const int warp : {0, 3}) {
      INFO(v.dump() << " warp " << warp);
      const uint32_t quarter = 32 * static_cast<uint32_t>(warp), start = (quarter + base) << 16 | 64;
      fill(tmem);
      Registers out(count);
      tcgen05_ld(m.warp(warp), shape_of(shape), num, false, start, 0, out.pointers);
      CHECK(out.rows[r].lane[t] == tag(quarter + base + lane, 64 + column));
      tcgen05_ld(m.warp(warp), shape_of(shape), num, true, start, 0, out.pointers);
      CHECK(out.rows[r].lane[t] == ((64 + low) | (64 + high) << 16));

      Registers in(count);
      in.rows[r].lane[t] = 0x12345678;
      tcgen05_st(m.warp(warp), shape_of(shape), num, false, start, 0, in.sources());
      CHECK(tmem.word(quarter + base + lane, 64 + column) == 0x12345678);
      tcgen05_st(m.warp(warp), shape_of(shape), num, true, start, 0, in.sources());
      CHECK((tmem.word(quarter + base + lane, 64 + low) & 0xffff) == 0x5678);
      CHECK((tmem.word(quarter + base + lane, 64 + high) & 0xffff) == 0x1234);
    }
  }
}

TEST_CASE("16x32bx2 reads its second half at an immediate distance", "[engine][tmem]") {
  Machine m;
  allocate(m, 512);
  fill(*m.cta().tensor_memory);
  for (const json& v : load_vectors("blackwell_isa.json")["tmem_ldst_16x32bx2"]) {
    INFO(v.dump());
    const int num = v["num"], imm = v["imm"];
    Registers out(num);
    tcgen05_ld(m.warp(1), TmemShape::S16x32bx2, num, false, (32u + 16) << 16 | 8, imm, out.pointers);
    CHECK(out.rows[v["reg"]].lane[v["thread"].get<int>()] ==
          tag(48 + v["lane"].get<uint32_t>(), 8 + v["col"].get<uint32_t>()));
  }
}

TEST_CASE("a store and a load of the same shape are inverse for every shape and size", "[engine][tmem]") {
  Machine m;
  allocate(m, 512);
  const struct {
    TmemShape shape;
    int per, limit;
  } shapes[] = {{TmemShape::S32x32b, 1, 128},
                {TmemShape::S16x64b, 1, 128},
                {TmemShape::S16x128b, 2, 64},
                {TmemShape::S16x256b, 4, 32},
                {TmemShape::S16x32bx2, 1, 128}};
  for (const auto& s : shapes)
    for (int num = 1; num <= s.limit; num *= 2)
      for (const bool pack : {false, true}) {
        Registers in(num * s.per), out(num * s.per);
        for (size_t r = 0; r < in.rows.size(); ++r)
          for (uint32_t t = 0; t < 32; ++t)
            in.rows[r].lane[t] = static_cast<uint32_t>(r * 32 + t) * 2654435761u;
        tcgen05_st(m.warp(2), s.shape, num, pack, 0, 2 * num, in.sources());
        tcgen05_ld(m.warp(2), s.shape, num, pack, 0, 2 * num, out.pointers);
        CHECK(std::memcmp(in.rows.data(), out.rows.data(), in.rows.size() * sizeof(Row)) == 0);
      }
}

TEST_CASE("columns are handed out first fit and come back poisoned", "[engine][tmem]") {
  Machine m;
  const uint32_t a = allocate(m, 256), b = allocate(m, 128), c = allocate(m, 128);
  CHECK(a == 0);
  CHECK(b == 256);
  CHECK(c == 384);
  CHECK_FALSE(tcgen05_alloc(m.warp(), 1024, 32, 1));  // blocks
  m.cta().tensor_memory->word(5, 300) = 0;
  const uint64_t epoch = m.cluster.epoch;
  CHECK(tcgen05_dealloc(m.warp(), b, 128, 1));
  CHECK(m.cluster.epoch > epoch);
  CHECK(m.cta().tensor_memory->word(5, 300) == 0xffffffff);
  CHECK(allocate(m, 32) == 256);
  CHECK(engines_at_exit(m.cta()).size() == 1);
}

TEST_CASE("misuse of tensor memory is a fault with a sentence", "[engine][tmem]") {
  Machine m;
  Registers r(4);
  const auto alloc = [&](uint32_t columns) {
    return fault_of([&] { tcgen05_alloc(m.warp(), 1024, columns, 1); });
  };
  CHECK(has(alloc(48), "alloc of 48 columns"));
  CHECK(has(alloc(1024), "alloc of 1024 columns"));
  CHECK(has(fault_of([&] { tcgen05_alloc(m.warp(), 1024, 32, 2); }), "no other CTA to pair with"));
  CHECK(alloc(128).empty());
  CHECK(has(alloc(256), "must not grow"));
  const auto ld = [&](int warp, uint32_t address, TmemShape shape = TmemShape::S32x32b, int repeat = 4) {
    return fault_of([&] { tcgen05_ld(m.warp(warp), shape, repeat, false, address, 0, r.pointers); });
  };
  CHECK(ld(1, 0).empty());
  CHECK(ld(1, 32u << 16 | 124).empty());
  CHECK(has(ld(1, 64u << 16), "belongs to another warp"));
  CHECK(has(ld(1, 126), "[128, 160) are not allocated"));
  CHECK(has(ld(1, 510), "there are 512"));
  CHECK(has(ld(0, 16u << 16), "a multiple of 32"));
  CHECK(has(ld(0, 8u << 16, TmemShape::S16x256b, 1), "a multiple of 16"));
  CHECK(has(ld(0, 0, TmemShape::S32x32b, 3), ".x3 does not exist"));
  CHECK(has(fault_of([&] { tcgen05_dealloc(m.warp(), 0, 64, 1); }), "no allocation has this base and size"));
  CHECK(
      has(fault_of([&] { tcgen05_dealloc(m.warp(), 32, 128, 1); }), "no allocation has this base and size"));
  tcgen05_relinquish(m.warp(), 1);
  CHECK(has(alloc(32), "after relinquish"));
  CHECK(tcgen05_dealloc(m.warp(), 0, 128, 1));
  CHECK(engines_at_exit(m.cta()).empty());
}

TEST_CASE("late loads and stores happen at their wait", "[engine][tmem]") {
  Machine m(1, Schedule::Kind::Lazy);
  allocate(m, 32);
  TensorMemory& tmem = *m.cta().tensor_memory;
  fill(tmem);
  Registers r(2);
  tcgen05_ld(m.warp(), TmemShape::S32x32b, 2, false, 0, 0, r.pointers);
  CHECK(r.rows[1].lane[7] == 0xffffffff);
  CHECK(engines_at_exit(m.cta()).front() == "warp 0: tcgen05.ld without wait::ld");
  tcgen05_wait_ld(m.warp());
  CHECK(r.rows[1].lane[7] == tag(7, 1));

  r.rows[0].lane[3] = 42;
  tcgen05_st(m.warp(), TmemShape::S32x32b, 2, false, 4, 0, r.sources());
  r.rows[0].lane[3] = 43;  // sources were read at issue
  CHECK(tmem.word(3, 4) == 0xffffffff);
  tcgen05_wait_st(m.warp());
  CHECK(tmem.word(3, 4) == 42);
}
