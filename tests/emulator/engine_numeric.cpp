// Tensor-core arithmetic: published vectors, an independent model in double precision, and vector code
// against the integer reference.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "emulator/engine_harness.hpp"
#include "engines/small_floats.hpp"
#include "engines/tensor_numeric.hpp"
#include "support/vectors.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;
using mxfa::reference::load_vectors;
using nlohmann::json;

namespace {

struct Case {
  Format format;
  int m, n, k;
  std::vector<uint32_t> a, b, c;  // raw; a[i * k + x], b[j * k + x], c[j * m + i]
  std::vector<int> sfa, sfb;      // exponents, empty: none
};

std::unique_ptr<Operands> decode(const Case& t) {
  auto o = std::make_unique<Operands>();
  std::memset(static_cast<void*>(o.get()), 0xff, sizeof(*o));
  o->m = t.m, o->n = t.n, o->k = t.k;
  const size_t bytes = static_cast<size_t>(format_bits(t.format)) / 8;
  std::vector<uint8_t> raw_a(Operands::kM * 32, 0), raw_b(Operands::kN * 32, 0);
  for (int x = 0; x < t.k; ++x) {
    for (int i = 0; i < t.m; ++i)
      std::memcpy(&raw_a[(static_cast<size_t>(x) * 128 + i) * bytes], &t.a[i * t.k + x], bytes);
    for (int j = 0; j < t.n; ++j)
      std::memcpy(&raw_b[static_cast<size_t>(j) * 32 + x * bytes], &t.b[j * t.k + x], bytes);
  }
  decode_a(*o, t.format, false, raw_a.data());
  decode_b(*o, t.format, false, raw_b.data());
  for (size_t i = 0; i < t.sfa.size(); ++i) o->a_scale[i] = t.sfa[i];
  for (size_t j = 0; j < t.sfb.size(); ++j) o->b_scale[j] = t.sfb[j];
  return o;
}

struct Words {
  std::vector<uint32_t> words = std::vector<uint32_t>(256 * 128, 0xdeadbeef);
  Accumulator view(const Case& t) {
    Accumulator d;
    d.d = words.data();
    d.accumulate = !t.c.empty();
    for (int g = 0; g < t.m / 16; ++g) d.lane[g] = static_cast<uint8_t>(16 * g), d.enabled[g] = 0xffff;
    for (int j = 0; j < t.n; ++j)
      for (int i = 0; i < t.m; ++i)
        words[static_cast<size_t>(j) * 128 + i] = t.c.empty() ? 0 : t.c[static_cast<size_t>(j) * t.m + i];
    return d;
  }
};

Case random_case(std::mt19937& random, Format format, bool specials, int spread) {
  Case t;
  t.format = format;
  t.m = random() % 2 ? 64 : 128;
  t.n = 8 * (1 + random() % 4);
  t.k = 256 / format_bits(format);
  const auto draw = [&]() -> uint32_t {
    if (!specials && random() % 4 == 0) return 0;
    const uint32_t sign = random() & 1;
    switch (format) {
      case Format::E4M3:
        return specials ? random() & 255 : sign << 7 | random() % 0x7f;
      case Format::E5M2:
        return specials ? random() & 255 : sign << 7 | random() % 0x7c;
      case Format::F16:
        return specials && random() % 64 == 0 ? 0x7c00u | sign << 15 : sign << 15 | random() % 0x7c00;
      default: {  // bf16 and tf32 with exponents around 2^0
        const int exponent = 127 + static_cast<int>(random() % (2 * spread + 1)) - spread;
        const uint32_t word = sign << 31 |
                              static_cast<uint32_t>(std::clamp(exponent, 0, specials ? 255 : 254)) << 23 |
                              (random() & 0x7fffff);
        return format == Format::BF16 ? word >> 16 : word;
      }
    }
  };
  t.a.resize(static_cast<size_t>(t.m) * t.k), t.b.resize(static_cast<size_t>(t.n) * t.k);
  for (uint32_t& x : t.a) x = draw();
  for (uint32_t& x : t.b) x = draw();
  if (random() % 3) {
    t.c.resize(static_cast<size_t>(t.m) * t.n);
    for (uint32_t& x : t.c) {
      const int exponent = std::clamp(127 + static_cast<int>(random() % (2 * spread + 61)) - spread - 30, 0,
                                      specials ? 255 : 254);
      x = random() % 8 == 0
              ? 0
              : (random() & 1) << 31 | static_cast<uint32_t>(exponent) << 23 | (random() & 0x7fffff);
    }
  }
  if (format_bits(format) == 8 && random() % 2) {
    for (int i = 0; i < t.m; ++i) t.sfa.push_back(static_cast<int>(random() % 255) - 127);
    for (int j = 0; j < t.n; ++j) t.sfb.push_back(static_cast<int>(random() % 255) - 127);
  }
  return t;
}

// Value and exponent of one element, by arithmetic on its fields.
struct Element {
  double value;
  int exponent;
};
Element element(Format format, uint32_t raw) {
  struct {
    int width, mantissa, bias;
  } f{};
  switch (format) {
    case Format::E4M3:
      f = {8, 3, 7};
      break;
    case Format::E5M2:
      f = {8, 2, 15};
      break;
    case Format::F16:
      f = {16, 10, 15};
      break;
    case Format::BF16:
      f = {16, 7, 127};
      break;
    default:
      f = {32, 23, 127};
      raw &= ~0x1fffu;
      break;
  }
  const uint32_t sign = raw >> (f.width - 1) & 1,
                 field = raw >> f.mantissa & ((1u << (f.width - 1 - f.mantissa)) - 1);
  const uint32_t fraction = raw & ((1u << f.mantissa) - 1);
  const int exponent = std::max<int>(static_cast<int>(field), 1) - f.bias;
  const double significand = fraction * std::ldexp(1.0, -f.mantissa) + (field ? 1 : 0);
  return {(sign ? -1 : 1) * std::ldexp(significand, exponent), exponent};
}

// The formula of the model for finite inputs; doubles hold every quantity exactly.
uint32_t model(const Case& t, int i, int j) {
  int e = -133;
  std::vector<std::pair<double, int>> terms;
  const int scale = (t.sfa.empty() ? 0 : t.sfa[i]) + (t.sfb.empty() ? 0 : t.sfb[j]);
  for (int x = 0; x < t.k; ++x) {
    const Element a = element(t.format, t.a[i * t.k + x]), b = element(t.format, t.b[j * t.k + x]);
    if (a.value != 0 && b.value != 0)
      terms.push_back({std::ldexp(a.value * b.value, scale), a.exponent + b.exponent + scale});
  }
  if (!t.c.empty()) {
    const uint32_t c = t.c[static_cast<size_t>(j) * t.m + i];
    if (c << 1) terms.push_back({std::bit_cast<float>(c), std::max<int>(c >> 23 & 255, 1) - 127});
  }
  for (const auto& term : terms) e = std::max(e, term.second);
  double sum = 0;
  for (const auto& term : terms) sum += std::trunc(std::ldexp(term.first, 25 - e));
  const double exact = std::ldexp(sum, e - 25);
  if (std::fabs(exact) >= 0x1p128) return exact < 0 ? 0xff800000 : 0x7f800000;
  float rounded = static_cast<float>(exact);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(exact)) rounded = std::nextafterf(rounded, 0.0f);
  return std::bit_cast<uint32_t>(rounded);
}

}  // namespace

TEST_CASE("the fused sum gives the published bits", "[engine][numeric]") {
  const std::map<std::string, Format> formats{
      {"bf16", Format::BF16}, {"f16", Format::F16}, {"e4m3", Format::E4M3}, {"e5m2", Format::E5M2}};
  const json& all = load_vectors("blackwell_isa.json");
  for (const json& v : all["mma_numerics_f32_acc"]) {
    INFO(v.dump());
    const auto hex = [](const json& x) {
      return static_cast<uint32_t>(std::stoull(x.get<std::string>(), nullptr, 16));
    };
    Case t;
    t.format = formats.at(v["fmt"]);
    t.m = 64, t.n = 8, t.k = v["K"];
    t.a.resize(64 * t.k), t.b.resize(8 * t.k), t.c.resize(64 * 8);
    for (int x = 0; x < t.k; ++x) t.a[37 * t.k + x] = hex(v["a"][x]), t.b[5 * t.k + x] = hex(v["b"][x]);
    t.c[5 * 64 + 37] = hex(v["c"]);
    const auto o = decode(t);
    Words w;
    const Accumulator d = w.view(t);
    CHECK(fused_sum_reference(*o, 37, 5, true, hex(v["c"]), 0, false) == hex(v["d"]));
    fused_sums(*o, d, Numerics::Exact);
    CHECK(w.words[5 * 128 + 37] == hex(v["d"]));
  }
}

TEST_CASE("the fused sum follows the formula for random finite operands", "[engine][numeric]") {
  std::mt19937 random(3);
  for (const Format format : {Format::E4M3, Format::E5M2, Format::F16, Format::BF16, Format::TF32})
    for (int round = 0; round < 24; ++round) {
      const Case t = random_case(random, format, false, round % 3 == 0 ? 3 : round % 3 == 1 ? 20 : 60);
      const auto o = decode(t);
      Words w;
      const Accumulator d = w.view(t);
      fused_sums(*o, d, Numerics::Exact);
      int wrong = 0;
      for (int j = 0; j < t.n; ++j)
        for (int i = 0; i < t.m; ++i) wrong += w.words[static_cast<size_t>(j) * 128 + i] != model(t, i, j);
      INFO("format " << static_cast<int>(format) << " round " << round);
      CHECK(wrong == 0);
    }
}

TEST_CASE("vector code and integer reference agree bit for bit, specials and extremes included",
          "[engine][numeric]") {
  std::mt19937 random(4);
  for (const Format format : {Format::E4M3, Format::E5M2, Format::F16, Format::BF16, Format::TF32})
    for (int round = 0; round < 40; ++round) {
      Case t = random_case(random, format, round % 2 == 0, round % 4 < 2 ? 127 : 30);
      if (round % 5 == 0)  // whole rows and columns of zero
        for (int i = 0; i < t.m; i += 3) std::fill_n(t.a.begin() + i * t.k, t.k, 0u);
      const auto o = decode(t);
      Words vector, reference;
      Accumulator d = vector.view(t);
      d.scale_exponent = round % 7 == 0 ? 5 : 0;
      d.enabled[1] = 0xa5a5;
      fused_sums(*o, d, Numerics::Exact);
      Accumulator r = reference.view(t);
      r.scale_exponent = d.scale_exponent;
      r.enabled = d.enabled;
      for (int j = 0; j < t.n; ++j)
        for (int g = 0; g < t.m / 16; ++g)
          fused_sums_reference(*o, r, j, g, r.enabled[static_cast<size_t>(g)]);
      INFO("format " << static_cast<int>(format) << " round " << round);
      CHECK(vector.words == reference.words);
    }
}

TEST_CASE("NaN, infinity, overflow and underflow of the fused sum", "[engine][numeric]") {
  const auto sum = [](uint32_t a0, uint32_t a1, uint32_t c) {  // bf16: a0 * 1 + a1 * 1 + c
    Case t;
    t.format = Format::BF16, t.m = 64, t.n = 8, t.k = 16;
    t.a.resize(64 * 16), t.b.assign(8 * 16, 0x3f80), t.c.assign(64 * 8, c);
    t.a[0] = a0, t.a[1] = a1;
    const auto o = decode(t);
    Words w;
    const Accumulator d = w.view(t);
    fused_sums(*o, d, Numerics::Exact);
    CHECK(w.words[0] == fused_sum_reference(*o, 0, 0, true, c, 0, false));
    return w.words[0];
  };
  CHECK(sum(0x7fc0, 0, 0) == 0x7fffffff);
  CHECK(sum(0x7f80, 0, 0) == 0x7f800000);
  CHECK(sum(0x7f80, 0xff80, 0) == 0x7fffffff);
  CHECK(sum(0x7f80, 0, 0xff800000) == 0x7fffffff);
  CHECK(sum(0, 0, 0xff800000) == 0xff800000);
  CHECK(sum(0, 0, 0x7f812345) == 0x7fffffff);
  CHECK(sum(0x7f7f, 0x7f7f, 0) == 0x7f800000);  // finite overflow
  CHECK(sum(0xff7f, 0, 0xff7fffff) == 0xff800000);
  CHECK(sum(0x3f80, 0xbf80, 0) == 0);  // exact zero is +0
  CHECK(sum(0, 0, 0x80000000) == 0);
  CHECK(sum(0x0001, 0x0001, 0x00000001) == 0x00020001);  // subnormals are kept
}

TEST_CASE("f16 results round to nearest even", "[engine][numeric]") {
  const auto sum = [](uint32_t a0, uint32_t a1, uint32_t c) {
    Case t;
    t.format = Format::F16, t.m = 64, t.n = 8, t.k = 16;
    t.a.resize(64 * 16), t.b.assign(8 * 16, 0x3c00);
    t.a[0] = a0, t.a[1] = a1;
    return fused_sum_reference(*decode(t), 0, 0, true, c, 0, true);
  };
  CHECK(sum(0x3c00, 0x1000, 0) == 0x3c00);  // 1 + 2^-11
  CHECK(sum(0x3c01, 0x1000, 0) == 0x3c02);
  CHECK(sum(0x7bff, 0x4c00, 0) == 0x7c00);  // 65504 + 16
  CHECK(sum(0x7bff, 0x4bff, 0) == 0x7bff);
  CHECK(sum(0x0001, 0x0002, 0x8004) == 0x8001);  // subnormals
  CHECK(sum(0x7c00, 0, 0xfc00) == 0x7fff);
}

TEST_CASE("the plain mode is an FP32 sum and is chosen by name", "[engine][numeric]") {
  Case t;
  t.format = Format::BF16, t.m = 64, t.n = 8, t.k = 16;
  t.a.assign(64 * 16, 0x3f80), t.b.assign(8 * 16, 0x3f80),
      t.c.assign(64 * 8, std::bit_cast<uint32_t>(0x1p-24f));
  const auto o = decode(t);
  Words w;
  const Accumulator d = w.view(t);
  fused_sums(*o, d, Numerics::F32);
  CHECK(std::bit_cast<float>(w.words[0]) == 16.0f);
  setenv("MXFA_EMU_MMA", "f32", 1);
  CHECK(numerics_from_environment() == Numerics::F32);
  setenv("MXFA_EMU_MMA", "fast", 1);
  CHECK(has(fault_of([] { numerics_from_environment(); }), "MXFA_EMU_MMA=fast"));
  unsetenv("MXFA_EMU_MMA");
  CHECK(numerics_from_environment() == Numerics::Exact);
}

// Not a test: prints what one core does.  mxfa_test_emulator "[.speed]"
TEST_CASE("speed of one mma instruction", "[.speed]") {
  for (const bool mx : {true, false}) {
    Machine m;
    REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1));
    std::mt19937 random(1);
    for (uint32_t i = 0x2000; i < 0xa000; i += 2) {  // bf16 near one, e4m3 of moderate size
      const uint16_t x = mx ? static_cast<uint16_t>(random() & 0x8f8f) | 0x3030
                            : static_cast<uint16_t>(0x3f00 | (random() & 0x80ff));
      std::memcpy(m.shared(i), &x, 2);
    }
    for (uint32_t& word : m.cta().tensor_memory->words) word = 0x7f7f7f7f;
    TensorMma mma;
    mma.kind = mx ? MmaKind::MXF8F6F4 : MmaKind::F16;
    mma.instruction = 16u << 17 | 8u << 24 | (mx ? 1u << 23 : 1u << 4 | 1u << 7 | 1u << 10);
    const uint64_t sw128 = uint64_t{64} << 32 | 1ull << 46 | 2ull << 61;
    mma.a_descriptor = 0x200 | sw128, mma.b_descriptor = 0x600 | sw128;
    mma.scale_a = 256, mma.scale_b = 260;
    tcgen05_mma(m.warp(), 0, mma);
    mma.accumulate = true;
    const int rounds = 2000;
    const std::clock_t start = std::clock();  // of this process: the machine may be shared
    for (int i = 0; i < rounds; ++i) tcgen05_mma(m.warp(), 0, mma);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / rounds;
    const double macs = 128.0 * 128 * (mx ? 32 : 16);
    std::printf("%s 128x128x%d: %.2f us, %.1f GMAC/s\n", mx ? "mxf8f6f4" : "bf16", mx ? 32 : 16,
                seconds * 1e6, macs / seconds * 1e-9);
  }
}
