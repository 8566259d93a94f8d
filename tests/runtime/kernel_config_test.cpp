#include "host/kernel_config.hpp"

#include "host/error.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using mxfa::test::Contains;

namespace {

const MxfaEmbedded kConfigs[] = {{"configs/kernels/tiny.json", R"({
  "kernel": "tiny", "source": "src/tiny.cuh", "archs": ["sm_90a", "sm_100a"],
  "choices": [
    {"when": {"head_dim": 128, "mxfp8": true}, "set": {"kv_stages": 8, "o_box_rows": 32}},
    {"when": {"head_dim": 128, "arch": "sm_90a"}, "set": {"kv_stages": 2, "o_box_rows": 64}},
    {"when": {"head_dim": 128}, "set": {"kv_stages": 3, "o_box_rows": 128}}
  ],
  "plan": {"order": 0}, "names": {"order": ["up", "down"]},
  "limits": {"kv_stages": [2, 10, 2], "order": [0, 1, 1]}
})"},
                                 {nullptr, nullptr}};

KernelConfig resolve(int head_dim, bool mxfp8, const char* arch = "sm_100a",
                     const char* overrides = nullptr) {
  return resolve_kernel_config(kConfigs, "tiny", arch,
                               {{"head_dim", head_dim, false}, {"mxfp8", mxfp8, true}}, overrides);
}

}  // namespace

TEST_CASE("The first choice that agrees with every fact wins", "[config]") {
  CHECK(resolve(128, true).at("kv_stages") == 8);
  CHECK(resolve(128, true, "sm_90a").at("kv_stages") == 8);
  CHECK(resolve(128, false, "sm_90a").at("kv_stages") == 2);
  CHECK(resolve(128, false).at("kv_stages") == 3);
}

TEST_CASE("The translation unit names every field once and includes the kernel", "[config]") {
  CHECK(resolve(128, true, "sm_100a", R"({"kv_stages": 4})").translation_unit() ==
        "// tiny for sm_100a, generated from configs/kernels/tiny.json.\n"
        "// head_dim=128 mxfp8=1 kv_stages=4 o_box_rows=32\n"
        "struct Config {\n"
        "  static constexpr int head_dim = 128;\n"
        "  static constexpr bool mxfp8 = true;\n"
        "  static constexpr int kv_stages = 4;\n"
        "  static constexpr int o_box_rows = 32;\n"
        "};\n"
        "#include \"src/tiny.cuh\"\n");
}

TEST_CASE("What cannot be resolved is refused with its name and the remedy", "[config]") {
  CHECK_THROWS_WITH(resolve(72, false), Contains("head_dim 72") && Contains("tiny"));
  CHECK_THROWS_WITH(resolve(128, false, "sm_120a"), Contains("sm_120a") && Contains("sm_90a, sm_100a"));
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", R"({"kv_stage": 4})"),
                    Contains("kernel.kv_stage") && Contains("did you mean \"kv_stages\"?"));
  // A field without limits is the kernel's own business.
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", R"({"o_box_rows": 64})"), Contains("kernel.o_box_rows"));
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", R"({"head_dim": 64})"), Contains("kernel.head_dim"));
  for (const char* value : {"1", "11", "5", "4.0", "\"4\"", "true", "null", "99999999999999999999"}) {
    INFO(value);
    CHECK_THROWS_WITH(
        resolve(128, false, "sm_100a", (std::string("{\"kv_stages\": ") + value + "}").c_str()),
        Contains(std::string("kernel.kv_stages is ") + value) && Contains("from 2 to 10 in steps of 2"));
  }
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", "[4]"), Contains("object"));
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", R"({"kv_stages": 4, "kv_stages": 6})"),
                    Contains("kv_stages") && Contains("duplicate"));
  CHECK_THROWS_WITH(resolve(128, false, "sm_100a", R"({"kv_stages": )"), Contains("line 1"));
}

TEST_CASE("A fact that only chooses is no field of the kernel", "[config]") {
  const auto kept =
      resolve_kernel_config(kConfigs, "tiny", "sm_100a",
                            {{"head_dim", 128}, {"mxfp8", 1, true, ConfigField::Use::kChoiceOnly}}, nullptr);
  CHECK(kept.at("kv_stages") == 8);
  CHECK(kept.translation_unit().find("mxfp8") == std::string::npos);
}

TEST_CASE("A field for the plan makes no second kernel, and takes its value by name", "[config]") {
  const KernelConfig config = resolve(128, true, "sm_100a", R"({"order": "down"})");
  CHECK(config.at("order") == 1);
  CHECK(config.translation_unit() == resolve(128, true).translation_unit());
  CHECK(resolve(128, true, "sm_100a", R"({"order": 1})").at("order") == 1);
  CHECK_THROWS_WITH(resolve(128, true, "sm_100a", R"({"order": "sideways"})"),
                    Contains("kernel.order is \"sideways\"") && Contains("up, down"));
}

TEST_CASE("An override is kept for the description", "[config]") {
  CHECK(resolve(128, true, "sm_100a", "{}").overrides.empty());
  CHECK(resolve(128, true, "sm_100a", "{ \"kv_stages\" : 6 }").overrides == R"({"kv_stages":6})");
}

TEST_CASE("The configurations that ship resolve for what the operations ask", "[config]") {
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"})
    for (const int head_dim : {64, 96, 128})
      CHECK(resolve_kernel_config(mxfa_embedded_kernel_configs, "mxfp8_quantize", arch,
                                  {{"head_dim", head_dim, false},
                                   {"layout", 2, false},
                                   {"floor", 0, false},
                                   {"even_heads", true, true, ConfigField::Use::kChoiceOnly}},
                                  nullptr)
                .at("threads") >= 64);
  for (const int head_dim : {64, 96, 128})
    for (const bool mxfp8 : {false, true})
      for (const bool two_unit_tiles : {false, true})
        CHECK(resolve_kernel_config(mxfa_embedded_kernel_configs, "attention_fwd_sm90", "sm_90a",
                                    {{"head_dim", head_dim},
                                     {"mxfp8", mxfp8, true},
                                     {"two_unit_tiles", two_unit_tiles, true, ConfigField::Use::kChoiceOnly}},
                                    nullptr)
                  .at("consumer_warpgroups") == (mxfp8                               ? 3
                                                 : head_dim == 64                    ? 4
                                                 : head_dim == 128 && two_unit_tiles ? 2
                                                                                     : 3));
  for (const char* arch : {"sm_100a", "sm_103a"})
    for (const int head_dim : {64, 128})
      for (const bool mxfp8 : {false, true})
        CHECK(resolve_kernel_config(
                  mxfa_embedded_kernel_configs, "attention_fwd_sm100", arch,
                  {{"head_dim", head_dim, false}, {"mxfp8", mxfp8, true}, {"dynamic_p", false, true}},
                  nullptr)
                  .at("o_box_rows") >= 32);
}
