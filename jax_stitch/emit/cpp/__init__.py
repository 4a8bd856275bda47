"""The kernel language as C++ text: the only modules that write C++."""
