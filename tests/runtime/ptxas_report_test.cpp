#include "host/ptxas_report.hpp"

#include "support/catch.hpp"

TEST_CASE("The report holds registers, spills, shared memory and advisories", "[jit]") {
  const auto report = mxfa::parse_ptxas_log(
      "k.cu(4): warning #177-D: variable \"unused\" was declared but never referenced\n"
      "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine "
      "register count at entry.\n"
      "ptxas info    : 16 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_100a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     256 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 3 barriers, 256 bytes cumulative stack size, 400 bytes smem\n"
      "ptxas info    : Function properties for _Z1fiPi\n"
      "ptxas         .     0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n");
  CHECK(report.registers == 40);
  CHECK(report.barriers == 3);
  CHECK(report.static_shared_bytes == 400);
  CHECK(report.stack_bytes == 256);
  CHECK(report.spill_stores == 16);  // of the kernel and the function it calls
  CHECK(report.spill_loads == 24);
  REQUIRE(report.warnings.size() == 2);
  CHECK(report.warnings[0].find("#177-D") != std::string::npos);
  CHECK(report.warnings[1].find("setmaxnreg") != std::string::npos);
}
