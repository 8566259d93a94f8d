#include "host/sha256.hpp"

#include "support/catch.hpp"

using mxfa::hex;
using mxfa::sha256;

// FIPS 180-4 examples (NIST, "SHA256.pdf" of the Cryptographic Standards and Guidelines examples).
TEST_CASE("SHA-256 gives the digests of the standard's examples", "[sha256]") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1000000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on how the bytes are cut into updates", "[sha256]") {
  const std::string text(200, 'x');
  for (const size_t cut : {1u, 55u, 56u, 63u, 64u, 65u, 128u}) {
    mxfa::Sha256 hash;
    hash.update(text.substr(0, cut));
    hash.update(text.substr(cut));
    CHECK(hex(hash.digest()) == hex(sha256(text)));
  }
}

TEST_CASE("Fields of a key cannot slide into each other", "[sha256]") {
  mxfa::Sha256 one, other;
  one.field("ab"), one.field("c");
  other.field("a"), other.field("bc");
  CHECK(hex(one.digest()) != hex(other.digest()));
}
