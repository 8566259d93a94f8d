// docs/roofline.md: what each configuration of the Blackwell forward uses of an SM, from its compiled code,
// and the bound that the published rates of the units predict from that.  MXFA_UPDATE_DOCS=1 writes the page;
// with MXFA_NVDISASM=PROGRAM its part from SASS too, which stays as it is where there is no disassembler.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/disassemble.hpp"
#include "runtime/loop_profile.hpp"
#include "runtime/shipped_kernel.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

const std::string kPage = MXFA_SOURCE_DIR "/docs/roofline.md";
constexpr const char* kSassTitle = "## The softmax loop in SASS";

using Case = BlackwellForward;

std::string name_of(const Case& c) {
  const char* format = c.pair ? "BF16, pair" : !c.mxfp8 ? "BF16" : c.dynamic_p ? "MXFP8, dynamic P" : "MXFP8";
  return fmt::format("{} | {} | {}", c.arch, format, c.head_dim);
}

// Cycles of an SM for 256 query rows and one block of 128 keys.
struct Cycles {
  std::vector<std::pair<const char*, double>> units;
  double at(const char* name) const {
    return std::find_if(units.begin(), units.end(),
                        [&](const auto& u) { return u.first == std::string(name); })
        ->second;
  }
  const std::pair<const char*, double>& bound() const {
    return *std::max_element(units.begin(), units.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
  }
};
constexpr double kRows = 256, kKeys = 128;

// Results a clock and SM of each pipe; issue: four warps of 32.
Cycles cycles_of(const Case& c, const PipeCounts& counts) {
  const auto pipe = [&](Pipe which, double rate) { return kRows * counts[size_t(which)] / rate; };
  double issued = 0;
  for (size_t i = 0; i < counts.size(); ++i) issued += i == size_t(Pipe::kMove) ? 0 : counts[i];
  // An MMA of K bytes 32 and M = 128 a CTA takes N/2 cycles.  Shared memory: 1/128 of the bytes that MMAs
  // read, Q and K for Q K^T and V for P V, and of those that arrive, K and V once for both stages; of K and V
  // half where a pair shares them.
  const double element = c.mxfp8 ? 1 : 2, half = c.pair ? 0.5 : 1;
  const double qk_steps = c.head_dim * element / 32, pv_steps = kKeys * element / 32;
  const double mma = 2 * (qk_steps * kKeys / 2 + pv_steps * c.head_dim / 2);
  const double shared =
      2 * (qk_steps * (128 + half * kKeys) * 32 / 128 + pv_steps * half * c.head_dim * 32 / 128) +
      2 * half * kKeys * c.head_dim * element / 128;
  return {{{"MMA", mma},
           {"shared memory", shared},
           {"MUFU", pipe(Pipe::kMufu, c.arch == std::string("sm_103a") ? 32 : 16)},
           {"FMA", pipe(Pipe::kFma, 128) + pipe(Pipe::kHalfFma, 64)},
           {"ALU", pipe(Pipe::kAlu, 64)},
           {"conversion", pipe(Pipe::kConversion, 32)},
           {"issue", kRows * issued / 128}}};
}

std::string count_row(const Case& c, const PipeCounts& counts) {
  std::string row = fmt::format("| {} |", name_of(c));
  int issued = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    row += fmt::format(" {:.2f} |", counts[i] / kKeys);
    if (i != size_t(Pipe::kMove)) issued += counts[i];
  }
  return row + fmt::format(" {:.2f} |\n", issued / kKeys);
}

std::string cycle_row(const Case& c, const PipeCounts& counts) {
  const Cycles cycles = cycles_of(c, counts);
  std::string row = fmt::format("| {} |", name_of(c));
  for (const auto& [unit, value] : cycles.units) row += fmt::format(" {:.0f} |", value);
  const auto& [unit, bound] = cycles.bound();
  const double share = cycles.at("MMA") / bound;
  const double peak = (c.arch == std::string("sm_103a") ? 2500 : 2250) * (c.mxfp8 ? 2 : 1);
  return row + fmt::format(" {} | {:.0f} % | {:.0f} |\n", unit, 100 * share, share * peak);
}

constexpr const char* kCountHeader =
    "| device | kernel | D | FMA | half-rate FMA | ALU | MUFU | conversion | memory | control | moves | "
    "issued |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|\n";

std::string cycle_header() {
  std::string header = "| device | kernel | D |", line = "|---|---|---|";
  for (const auto& [unit, value] : cycles_of(blackwell_forwards()[0], {}).units)
    header += fmt::format(" {} |", unit), line += "---|";
  return header + " predicted: bound by | of the tensor peak | TFLOP/s |\n" + line + "---|---|---|\n";
}

// The page's part that a disassembler gives.
std::string sass_section(const Nvrtc& nvrtc, const std::string& disassembler) {
  std::string counts, cycles;
  for (const Case& c : blackwell_forwards()) {
    const std::string text = disassemble(disassembler, compile_shipped(nvrtc, c.config())->cubin);
    const PipeCounts loop = count_softmax_loop(text);
    REQUIRE(loop[size_t(Pipe::kMufu)] >= 64);
    counts += count_row(c, loop);
    cycles += cycle_row(c, loop);
  }
  return fmt::format(
      "{}\nThe same from the machine code, as of the last time that the page was written with a "
      "disassembler. Uniform "
      "instructions count as ALU.\n\n{}{}\n{}{}",
      kSassTitle, kCountHeader, counts, cycle_header(), cycles);
}

std::string page(const Nvrtc& nvrtc, const std::string& sass) {
  std::string resources, counts, cycles;
  for (const Case& c : blackwell_forwards()) {
    const auto built = compile_shipped(nvrtc, c.config());
    const Artefact& artefact = *built;
    const abi::KernelTables t = tables_of(artefact.ptx, c.kernel());
    REQUIRE(t.magic == abi::kTablesMagic);
    const auto report = nlohmann::json::parse(artefact.report);
    const PipeCounts loop = count_softmax_loop(artefact.ptx);
    REQUIRE(loop[size_t(Pipe::kMufu)] >= 64);
    uint32_t tmem = 0;
    for (uint32_t i = 0; i < t.tmem_count; ++i) tmem = std::max(tmem, t.tmem[i].column + t.tmem[i].columns);
    resources += fmt::format("| {} | {} | {} / {} / {} | {} | {} | {} | {} |\n", name_of(c),
                             report["registers"].get<int>(), t.roles[0].registers, t.roles[2].registers,
                             t.roles[3].registers,
                             report["spill_loads"].get<int>() + report["spill_stores"].get<int>(),
                             t.shared_bytes, c.config().at("kv_stages"), tmem);
    counts += count_row(c, loop);
    cycles += cycle_row(c, loop);
  }
  return fmt::format(
      R"(# Static roofline of the Blackwell forward

What each shipped configuration of `attention_fwd_sm100` and `attention_fwd_sm100_pair` uses of an SM, and the
bound that follows: **predicted**, from counts and published rates; nothing here is measured. The page is
written by `MXFA_UPDATE_DOCS=1 mxfa_test_runtime [docs]` from the kernels without a mask, as compiled by
NVRTC {}, and a test compares it; `MXFA_NVDISASM=PROGRAM` names a disassembler for the part from SASS.

## Registers and memory
Registers: at the launch (ptxas), and of softmax / correction / the other warps after `setmaxnreg`. Spills:
bytes. Columns: of 512 of tensor memory, in use.

| device | kernel | D | ptxas | roles | spills | shared memory | K/V slots | columns |
|---|---|---|---|---|---|---|---|---|
{}
## The softmax loop in PTX
Instructions for each score (row and key) in the loop over the blocks that no mask cuts, one thread a row, 128
keys a turn. Half-rate FMA: pairs (`f32x2`), which count once. Moves are mostly names for halves of register
pairs, and are not counted as issued. What the correction, the loads and the MMAs issue comes on top.

{}{}
## Predicted cycles
For 256 query rows and a block of 128 keys, one turn of both stages of a CTA: 4 x 256 x 128 x D FLOPs.

| unit | a clock and SM |
|---|---|
| MMA | 8192 FLOPs in BF16, 16384 in MXFP8: N/2 cycles for K = 32 bytes |
| shared memory | 128 bytes: the operands of the MMAs, K and V arriving |
| MUFU | 16; 32 on sm_103a |
| FMA / half-rate FMA | 128 / 64 |
| ALU | 64 |
| conversion | 32 |
| issue | 4 warps |

Bound: the unit with the most cycles, if all others hide behind it. The share is that of the MMAs in it, and
TFLOP/s that share of 2250 (sm_100a, a B200) or 2500 (sm_103a, a GB300) in BF16, twice that in MXFP8.
Published kernels of this design reach 60 to 80 % of such a bound.

{}{}
{})",
      nvrtc.version(), resources, kCountHeader, counts, cycle_header(), cycles, sass);
}

}  // namespace

TEST_CASE("the innermost loop with the exponentials is counted, in PTX and in SASS", "[docs]") {
  std::string ptx = "$L__BB0_1:\n mov.b32 %r1, 0;\n$L__BB0_2: // inner\n\t.loc 1 2 3\n", sass = ".L_x_1:\n";
  for (int i = 0; i < 64; ++i) {
    ptx += "\t// begin inline asm\n\tex2.approx.ftz.f32 %f1, %f2;\n";
    sass += "        /*0010*/   @!P0 MUFU.EX2 R1, R1 ;   /* 0x0 */\n";
  }
  ptx +=
      " { .reg .pred p; setp.ne.b32 p, %r1, 0; fma.rn.ftz.f32x2 %rd1, %rd2, %rd3, %rd4; }\n"
      " add.ftz.f32 %f1, %f2, %f3;\n @%p1 bra $L__BB0_2;\n cvt.rn.bf16x2.f32 %r1, %f1, %f2;\n"
      " bra.uni $L__BB0_1;\n";
  sass += "        /*0020*/   FFMA2.FTZ R1, R2 ;\n        /*0030*/   BRA.U UP0, `(.L_x_1) ;\n";
  const PipeCounts p = count_softmax_loop(ptx), s = count_softmax_loop(sass);
  const auto at = [](const PipeCounts& counts, Pipe pipe) { return counts[size_t(pipe)]; };
  CHECK((at(p, Pipe::kMufu) == 64 && at(p, Pipe::kAlu) == 1 && at(p, Pipe::kHalfFma) == 1));
  CHECK((at(p, Pipe::kFma) == 1 && at(p, Pipe::kControl) == 1 && at(p, Pipe::kConversion) == 0));
  CHECK((at(s, Pipe::kMufu) == 64 && at(s, Pipe::kHalfFma) == 1 && at(s, Pipe::kControl) == 1));
  CHECK(count_softmax_loop("$L__BB0_1:\n bra $L__BB0_1;\n") == PipeCounts{});
}

TEST_CASE("docs/roofline.md is what the compiled kernels give", "[docs][kernels]") {
  const Nvrtc nvrtc;
  std::stringstream read;
  read << std::ifstream(kPage).rdbuf();
  const std::string kept = read.str();
  const bool update = std::getenv("MXFA_UPDATE_DOCS");
  if (!update && kept.find("NVRTC " + nvrtc.version() + ",") == kept.npos) {
    WARN("not compared: the page is of another NVRTC than " << nvrtc.version());
    return;
  }
  const size_t at = kept.find(kSassTitle);
  const char* disassembler = std::getenv("MXFA_NVDISASM");
  const std::string sass = disassembler       ? sass_section(nvrtc, disassembler)
                           : at < kept.size() ? kept.substr(at)
                                              : std::string();
  const std::string written = page(nvrtc, sass);
  if (update) {
    std::ofstream(kPage) << written;
  } else {
    INFO("write it again with MXFA_UPDATE_DOCS=1 mxfa_test_runtime [docs]");
    CHECK(written == kept);
  }
}
