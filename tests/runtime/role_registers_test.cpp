#include "runtime/role_registers.hpp"

#include "support/catch.hpp"

using namespace mxfa::test;

TEST_CASE("Registers of a role are those of the code that it can reach", "[kernels]") {
  // One role returns, through a block that stands behind the other's; the other takes a larger budget.
  const auto roles = role_registers(R"(
.text.kernel:
        /*0000*/                   S2R R99, SR_TID.X ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
        /*0020*/                   USETMAXREG.DEALLOC.CTAPOOL 0x18 ;
.L_x_0:
        /*0030*/              @!P0 LDG.E R7, desc[UR40][R20.64] ;
        /*0040*/                   BRA.DIV UR44, `(.L_x_2) ;
        /*0050*/               @P1 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
.L_x_1:
        /*0070*/                   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0 ;
        /*0080*/                   FADD R151, R150, R3 ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   SHFL.BFLY P0, R23, R3, R7, R14 ;
        /*00b0*/                   BRA `(.L_x_0) ;
)");
  REQUIRE(roles.size() == 2);
  CHECK(roles[0].budget == 24);
  CHECK(roles[0].highest == 23);
  CHECK(roles[1].budget == 240);
  CHECK(roles[1].highest == 151);
}
