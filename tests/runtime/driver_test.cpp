#include "host/driver.hpp"

#include "host/error.hpp"
#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

TEST_CASE("rt-arch-120: architectures are an exact list, not a numeric floor", "[driver]") {
  CHECK(arch_of(9, 0) == "sm_90a");
  CHECK(arch_of(10, 0) == "sm_100a");
  CHECK(arch_of(10, 3) == "sm_103a");
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 9}, {9, 1}, {10, 1}, {10, 4}, {11, 0}, {12, 0}, {12, 1}, {13, 0}})
    CHECK(arch_of(major, minor).empty());
}

TEST_CASE(
    "rt-arch-120, rt-arch-89: a device without kernels is refused with its capability and what is supported",
    "[driver]") {
  CHECK_THAT(refuse_device("NVIDIA GeForce RTX 5090", 12, 0), Contains("RTX 5090") && Contains("12.0") &&
                                                                  Contains("sm_100a") && Contains("sm_90a") &&
                                                                  Contains("emulator"));
  CHECK_THAT(refuse_device("NVIDIA L4", 8, 9), Contains("8.9") && Contains("9.0a") && Contains("10.0a"));
}

TEST_CASE("The device is the option, then MXFA_DEVICE, then auto", "[driver]") {
  using Kind = DeviceChoice::Kind;
  const Environment unset("MXFA_DEVICE", nullptr);
  CHECK(parse_device(nullptr).kind == Kind::kAuto);
  CHECK(parse_device("gpu").kind == Kind::kGpu);
  CHECK(parse_device("emulator").kind == Kind::kEmulator);
  CHECK(parse_device("emulator").model.empty());
  CHECK(parse_device("emulator:gb300").model == "gb300");
  CHECK(parse_device("emulator:gb300").ordinal == -1);
  CHECK(parse_device("emulator:gb300:1").model == "gb300");
  CHECK(parse_device("emulator:gb300:1").ordinal == 1);
  CHECK(parse_device("emulator:2").model.empty());
  CHECK(parse_device("emulator:2").ordinal == 2);
  CHECK(parse_device("gpu:0").ordinal == 0);
  CHECK(parse_device("gpu:12").kind == Kind::kGpu);
  CHECK(parse_device("gpu:12").ordinal == 12);
  const Environment variable("MXFA_DEVICE", "emulator:h200");
  CHECK(parse_device(nullptr).model == "h200");
  CHECK(parse_device("").model == "h200");
  CHECK(parse_device("gpu").kind == Kind::kGpu);
}

TEST_CASE("An unknown device is refused with the list", "[driver]") {
  const Environment unset("MXFA_DEVICE", nullptr);
  for (const char* text :
       {"cpu", "GPU", "1", "emulator:", "emulator:b300", "emulator:B200", "emulator:1:b200"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_device(text),
                      Contains(std::string("device is \"") + text + "\"") && Contains("emulator:b200"));
  }
  const Environment variable("MXFA_DEVICE", "verry");
  CHECK_THROWS_WITH(parse_device(nullptr), Contains("MXFA_DEVICE is \"verry\""));
}

TEST_CASE("What is no number of a device is refused with the form of one", "[driver]") {
  for (const char* text : {"gpu:", "gpu:x", "gpu:-1", "gpu: 1", "gpu:1x", "gpu:1:1", "gpu:1000", "auto:1"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_device(text), Contains(std::string("device is \"") + text + "\"") &&
                                              Contains("all but auto") && Contains("0 to 999, as in gpu:1"));
  }
  CHECK_THROWS_WITH(parse_device("emulator:b200:x"), Contains("\"emulator:b200:x\""));
}

TEST_CASE("A missing CPU driver names what was tried", "[driver]") {
  const Environment variable("MXFA_EMULATOR_LIBRARY", "/nonexistent/libmxfa_emulator.so");
  CHECK_THROWS_WITH(load_driver(parse_device("emulator")),
                    Contains("/nonexistent/libmxfa_emulator.so") && Contains("MXFA_EMULATOR_LIBRARY"));
}

TEST_CASE("A library that is no CUDA driver names what it lacks", "[driver]") {
  const Environment variable("MXFA_EMULATOR_LIBRARY", "libdl.so.2");
  CHECK_THROWS_WITH(load_driver(parse_device("emulator")), Contains("libdl.so.2 lacks cuInit"));
}
