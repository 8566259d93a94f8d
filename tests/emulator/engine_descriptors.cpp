// Descriptors of the tensor core: published encodings and addresses, and what is refused.
#include <map>
#include <nlohmann/json.hpp>

#include "emulator/engine_harness.hpp"
#include "engines/matrix_descriptor.hpp"
#include "support/vectors.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;
using mxfa::reference::load_vectors;
using nlohmann::json;

namespace {

uint64_t number(const json& v) { return std::stoull(v.get<std::string>(), nullptr, 16); }

constexpr uint32_t kIdescBF16 = 1u << 4 | 1u << 7 | 1u << 10;  // f32 <- bf16 x bf16
uint32_t size_field(uint32_t m, uint32_t n) { return n / 8 << 17 | m / 16 << 24; }

}  // namespace

TEST_CASE("instruction descriptors printed by CUTLASS decode to their fields", "[engine][tcgen05]") {
  const std::map<std::string, MmaKind> kinds{
      {"f16", MmaKind::F16}, {"tf32", MmaKind::TF32},         {"f8f6f4", MmaKind::F8F6F4},
      {"i8", MmaKind::I8},   {"mxf8f6f4", MmaKind::MXF8F6F4}, {"mxf4nvf4", MmaKind::MXF4NVF4}};
  const std::map<std::string, Format> formats{{"f16", Format::F16},   {"bf16", Format::BF16},
                                              {"tf32", Format::TF32}, {"e4m3", Format::E4M3},
                                              {"e5m2", Format::E5M2}, {"s8", Format::S8}};
  for (const json& v : load_vectors("blackwell_isa.json")["idesc"]) {
    INFO(v.dump());
    TensorMma mma;
    mma.kind = kinds.at(v["kind"]);
    mma.instruction = static_cast<uint32_t>(number(v["hex"]));
    mma.cta_group = v["M"] == 256 ? 2 : 1;
    if (v["kind"] == "mxf4nvf4") {  // 4-bit kinds are refused by name
      CHECK_FALSE(fault_of([&] { decode_instruction(mma); }).empty());
      continue;
    }
    const Instruction i = decode_instruction(mma);
    CHECK(i.m == v["M"]);
    CHECK(i.n == v["N"]);
    CHECK(i.a == formats.at(v["a"]));
    CHECK(i.b == formats.at(v["b"]));
    CHECK(i.a_mn_major == (v["a_major"] == "MN"));
    CHECK(i.b_mn_major == (v["b_major"] == "MN"));
    CHECK(i.scale_a_byte == v.value("sfa_id", 0));
    CHECK(i.scale_b_byte == v.value("sfb_id", 0));
  }
}

TEST_CASE("matrix descriptors address the elements CUTLASS's layouts address", "[engine][tcgen05]") {
  for (const json& v : load_vectors("blackwell_isa.json")["smem_desc"]) {
    const MatrixDescriptor d = decode_matrix(number(v["desc"]), "A");
    for (const json& e : v["elements"]) {
      INFO(v["case"] << " " << e.dump());
      CHECK(element_offset(d, v["bits"], v["major"] == "MN", e["mn"], e["k"]) == number(e["addr"]));
    }
  }
}

TEST_CASE("descriptors that hardware does not take are refused by name", "[engine][tcgen05]") {
  const auto text = [](uint64_t d) { return fault_of([&] { decode_matrix(d, "A"); }); };
  const uint64_t good = matrix(0x1000, 0, 1024, 2);
  CHECK(text(good).empty());
  CHECK(text(good + 2).empty());  // advanced by 32 bytes of K
  CHECK(has(text(good & ~(7ull << 46)), "bits [46:49)"));
  CHECK(has(text(good | 1ull << 49), "base offset 1"));
  CHECK(has(text(good | 1ull << 52), "bit 52"));
  CHECK(has(text(good | 1ull << 55), "reserved bit"));
  CHECK(has(text(good | 1ull << 61), "swizzle mode 3"));
  CHECK(has(text(matrix(0x1080, 0, 1024, 2)), "128 bytes into its swizzle pattern"));
  CHECK(has(text(matrix(0x1100, 0, 512, 4)), "256 bytes into its swizzle pattern"));
  CHECK(text(matrix(0x1200, 0, 512, 4)).empty());

  TensorMma mma;
  const auto instruction = [&](MmaKind kind, uint32_t idesc) {
    mma.kind = kind, mma.instruction = idesc;
    return fault_of([&] { decode_instruction(mma); });
  };
  const uint32_t size = size_field(128, 128), mx = 1u << 23;
  CHECK(instruction(MmaKind::F16, kIdescBF16 | size).empty());
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size_field(96, 128)), "M is 96"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size_field(128, 264)), "N is 264"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size_field(128, 0)), "N is 0"));
  CHECK(has(instruction(MmaKind::F16, (kIdescBF16 & ~0x30u) | size), "D of format f16"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size | 1u << 2), "sparse"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size | 2u << 7), "format code 3 of A"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size | mx), "bits [23:24)"));
  CHECK(has(instruction(MmaKind::MXF8F6F4, size), "UE8M0"));
  CHECK(has(instruction(MmaKind::MXF8F6F4, size_field(64, 128) | mx), "M is 64: 128 is needed"));
  CHECK(instruction(MmaKind::MXF8F6F4, size | mx | 5u << 7).empty());
  CHECK(has(instruction(MmaKind::MXF8F6F4, size | mx | 2u << 7), "format code 2 of A"));
  CHECK(has(instruction(MmaKind::MXF8F6F4, size | mx | 3u << 7 | 1u << 15), "always K-major"));
  CHECK(has(instruction(MmaKind::MXF8F6F4, size_field(128, 72) | mx | 1u << 16), "multiple of 16"));
  CHECK(has(instruction(MmaKind::I8, 2u << 4 | size_field(128, 40)), "N is 40"));
  mma.a_in_tmem = true;
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size | 1u << 15), "always K-major"));
  mma.cta_group = 2;
  CHECK(instruction(MmaKind::F16, kIdescBF16 | size).empty());
  CHECK(instruction(MmaKind::MXF8F6F4, size | mx).empty());
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size_field(64, 128)), "128 or 256 with cta_group::2"));
  CHECK(has(instruction(MmaKind::F16, kIdescBF16 | size_field(256, 72)), "N is 72"));
  CHECK(has(instruction(MmaKind::I8, 2u << 4 | size_field(256, 48)), "N is 48"));
  CHECK(has(instruction(MmaKind::F8F6F4, 1u << 4 | 1u << 16 | size_field(256, 48)), "multiple of 32"));
}
