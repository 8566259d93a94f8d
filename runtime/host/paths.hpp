// Where this library lives, and loading of shared libraries by name.
#pragma once

#include <string>
#include <vector>

namespace mxfa {

// Folder of the file this code was loaded from: libmxfa.so, or the program that links the static library.
std::string own_directory();

// dlopen of the first candidate that loads; its name goes to *name.  nullptr: none did, and *why lists each
// candidate with dlopen's reason (files that do not exist are named only).
void* open_first(const std::vector<std::string>& candidates, std::string* name, std::string* why);

}  // namespace mxfa
