#include "one_op.hpp"

#include <cstdio>
#include <random>

#include "support/catch.hpp"

namespace mxfa::test {
namespace {

std::string model_of(const std::string& target) {
  return target.starts_with("sm_90") ? "h200" : target.starts_with("sm_103") ? "gb300" : "b200";
}

int bytes_of(const std::string& type) {
  if (type.ends_with("16")) return 2;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("64")) return 8;
  throw std::runtime_error("no register type: " + type);
}

// Operand k of case i is the 8-byte word k * n + i of the inputs, result k likewise.
std::string kernel_text(const Form& form, const std::string& target) {
  std::string text = ptx_header(target, "8.8");
  text += ".visible .entry one_op(.param .u64 in, .param .u64 out, .param .u32 count)\n{\n";
  text +=
      "  .reg .pred %leave, %q<4>;\n  .reg .b32 %i, %n, %block, %width, %t<4>;\n  .reg .b64 %in, %out, "
      "%offset, %step, %w<4>;\n";
  for (size_t k = 0; k < form.inputs.size(); ++k)
    text += "  .reg ." + form.inputs[k] + " %a" + std::to_string(k) + ";\n";
  for (size_t k = 0; k < form.results.size(); ++k)
    text += "  .reg ." + form.results[k] + " %d" + std::to_string(k) + ";\n";
  text +=
      "  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];\n  ld.param.u32 %n, [count];\n"
      "  mov.u32 %block, %ctaid.x;\n  mov.u32 %width, %ntid.x;\n  mov.u32 %i, %tid.x;\n  mad.lo.u32 %i, "
      "%block, %width, %i;\n"
      "  setp.ge.u32 %leave, %i, %n;\n  @%leave bra finish;\n"
      "  mul.wide.u32 %offset, %i, 8;\n  mul.wide.u32 %step, %n, 8;\n"
      "  add.u64 %in, %in, %offset;\n  add.u64 %out, %out, %offset;\n";
  for (size_t k = 0; k < form.inputs.size(); ++k) {
    text += "  ld.global." + form.inputs[k] + " %a" + std::to_string(k) +
            ", [%in];\n  add.u64 %in, %in, %step;\n";
  }
  text += "  " + form.text + "\n";
  for (size_t k = 0; k < form.results.size(); ++k) {
    text += "  st.global." + form.results[k] + " [%out], %d" + std::to_string(k) +
            ";\n  add.u64 %out, %out, %step;\n";
  }
  return text + "finish:\n  ret;\n}\n";
}

std::string hex(const Words& words) {
  std::string text;
  char buffer[24];
  for (const uint64_t word : words) {
    std::snprintf(buffer, sizeof buffer, "%s0x%lx", text.empty() ? "" : " ", word);
    text += buffer;
  }
  return text;
}

std::vector<uint64_t> with_random(std::vector<uint64_t> values, int bits, int count) {
  std::mt19937_64 random(bits);
  for (int i = 0; i < count; ++i) values.push_back(bits == 64 ? random() : random() >> (64 - bits));
  return values;
}

}  // namespace

Driver& driver_for(const std::string& target) { return Driver::of(model_of(target)); }

std::vector<uint32_t> run_kernel(const Kernel& kernel, CUdeviceptr in, size_t out_words,
                                 const CUtensorMap* map) {
  Driver& cu = driver_for(kernel.target);
  std::string text = ptx_header(kernel.target, "8.8") + kernel.declarations +
                     "\n.visible .entry body(.param .u64 in, .param .u64 out";
  if (map) text += ", .param .align 64 .b8 map[128]";
  text += ")\n";
  if (kernel.cluster > 1)
    text += ".explicitcluster .reqnctapercluster " + std::to_string(kernel.cluster) + ", 1, 1\n";
  text +=
      "{\n  .reg .pred %p<20>;\n  .reg .b16 %h<20>;\n  .reg .b32 %r<100>, %thread, %lane, %warp, %cta;\n  "
      ".reg .f32 %f<40>;\n"
      "  .reg .b64 %w<40>, %in, %out;\n  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];\n  mov.u32 "
      "%thread, %tid.x;\n"
      "  mov.u32 %lane, %laneid;\n  shr.u32 %warp, %thread, 5;\n  mov.u32 %cta, %ctaid.x;\n" +
      kernel.body + "\n  ret;\n}\n";
  PtxModule module(cu, text);
  Buffer out(cu, out_words * 4);
  CUdeviceptr out_address = out.address();
  void* parameters[] = {&in, &out_address, const_cast<CUtensorMap*>(map)};
  CUfunction function = module.function("body");
  if (kernel.dynamic_shared) {
    REQUIRE(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  static_cast<int>(kernel.dynamic_shared)) == CUDA_SUCCESS);
  }
  INFO(text);
  const CUresult code = cu.cuLaunchKernel(function, kernel.ctas, 1, 1, kernel.threads, 1, 1,
                                          kernel.dynamic_shared, nullptr, parameters, nullptr);
  INFO(cu.error(code));
  REQUIRE(code == CUDA_SUCCESS);
  const CUresult after = cu.cuCtxSynchronize();
  INFO((cu.last_report ? cu.last_report() : ""));
  REQUIRE(after == CUDA_SUCCESS);
  return out.read<uint32_t>();
}

std::vector<uint32_t> run_kernel(const Kernel& kernel, const std::vector<uint32_t>& in, size_t out_words) {
  Buffer input(driver_for(kernel.target), in.empty() ? std::vector<uint32_t>(1) : in);
  return run_kernel(kernel, input.address(), out_words, nullptr);
}

bool can_run(const std::string& target) { return Driver::has(model_of(target)); }

std::vector<Words> run_form(const Form& form, const std::vector<Words>& cases, const std::string& target) {
  Driver& cu = Driver::of(model_of(target));
  const size_t n = cases.size();
  std::vector<uint64_t> in(form.inputs.size() * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < form.inputs.size(); ++k) in[k * n + i] = cases[i][k];
  }
  if (in.empty()) in.push_back(0);
  PtxModule module(cu, kernel_text(form, target));
  Buffer inputs(cu, in), outputs(cu, form.results.size() * n * 8);
  CUdeviceptr in_address = inputs.address(), out_address = outputs.address();
  uint32_t count = static_cast<uint32_t>(n);
  void* parameters[] = {&in_address, &out_address, &count};
  const unsigned threads = 128;
  REQUIRE(cu.cuLaunchKernel(module.function("one_op"), (count + threads - 1) / threads, 1, 1, threads, 1, 1,
                            0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
  const auto out = outputs.read<uint64_t>();
  std::vector<Words> results(n, Words(form.results.size()));
  for (size_t k = 0; k < form.results.size(); ++k) {
    const int bits = 8 * bytes_of(form.results[k]);
    for (size_t i = 0; i < n; ++i)
      results[i][k] = bits == 64 ? out[k * n + i] : out[k * n + i] & ((1ull << bits) - 1);
  }
  return results;
}

void check_form(const Form& form, const std::vector<Words>& cases, const Reference& expected,
                const std::string& target, const Same& same) {
  if (!can_run(target)) return;
  CAPTURE(form.text);
  const auto results = run_form(form, cases, target);
  int differences = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Words wanted = expected(cases[i]);
    for (size_t k = 0; k < form.results.size(); ++k) {
      const int bits = 8 * bytes_of(form.results[k]);
      const uint64_t want = bits == 64 ? wanted[k] : wanted[k] & ((1ull << bits) - 1);
      if (same ? same(cases[i], results[i][k], want, k) : results[i][k] == want) continue;
      if (++differences <= 4) {
        UNSCOPED_INFO("operands " << hex(cases[i]) << ", result " << k << " is " << hex({results[i][k]})
                                  << ", not " << hex({want}));
      }
    }
  }
  INFO(differences << " of " << cases.size() << " cases differ");
  CHECK(differences == 0);
}

std::vector<uint64_t> edges16() {
  return with_random({0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff}, 16, 8);
}

std::vector<uint64_t> edges32() {
  return with_random({0,          1,          2,          3,          7,          15,         16,
                      31,         32,         33,         63,         64,         0x7f,       0x80,
                      0xff,       0x7fff,     0x8000,     0xffff,     0x10000,    0x7ffffffe, 0x7fffffff,
                      0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x55555555, 0xaaaaaaaa},
                     32, 12);
}

std::vector<uint64_t> edges64() {
  return with_random(
      {0, 1, 2, 31, 32, 63, 64, 65, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
       0x8000000000000000, 0x8000000000000001, 0xfffffffffffffffe, 0xffffffffffffffff},
      64, 12);
}

std::vector<uint64_t> float_edges() {
  std::vector<uint64_t> values;
  for (const uint32_t magnitude :
       {0u,          1u,          2u,          0x007fffffu, 0x00800000u, 0x00800001u, 0x3effffffu,
        0x3f000000u, 0x3f000001u, 0x3f7fffffu, 0x3f800000u, 0x3f800001u, 0x3fc00000u, 0x40200000u,
        0x40490fdbu, 0x42f0ffffu, 0x43e00000u, 0x43e00001u, 0x43f00000u, 0x477fe000u, 0x477ff000u,
        0x4b000000u, 0x4b800000u, 0x4b800001u, 0x4effffffu, 0x4f000000u, 0x4f7fffffu, 0x4f800000u,
        0x5f000000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x1e3ce508u,
        0x38d1b717u, 0x33000000u, 0x33000001u, 0x38800000u, 0x387fffffu}) {
    values.push_back(magnitude);
    values.push_back(magnitude | 0x80000000u);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 16; ++i) values.push_back(random() >> 32);
  // Near one another, where sums cancel and roundings tie.
  for (int i = 0; i < 16; ++i) values.push_back(0x3f000000u + (random() >> 40) * ((i & 1) ? 1 : 4));
  return values;
}

std::vector<uint64_t> half_edges() {
  return with_random({0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x401,  0x3800, 0x3bff, 0x3c00, 0x3c01,
                      0xbc00, 0x4000, 0x6bff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7fff, 0xffff},
                     16, 24);
}

std::vector<uint64_t> bfloat_edges() {
  return with_random({0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x81,   0x3f00, 0x3f7f, 0x3f80, 0x3f81,
                      0xbf80, 0x4000, 0x4380, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0x7fff, 0xffff},
                     16, 24);
}

std::vector<Words> combine(const std::vector<std::vector<uint64_t>>& operands, size_t limit) {
  size_t all = 1;
  for (const auto& values : operands) all *= values.size();
  std::vector<Words> cases;
  std::mt19937_64 random(11);
  for (size_t i = 0; i < std::min(all, limit); ++i) {
    size_t index = all <= limit ? i : random() % all;
    Words words;
    for (const auto& values : operands) {
      words.push_back(values[index % values.size()]);
      index /= values.size();
    }
    cases.push_back(words);
  }
  return cases;
}

}  // namespace mxfa::test
