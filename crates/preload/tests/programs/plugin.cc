// A C++ library for a program that does not use C++.
#include <cstdlib>
#include <new>
#include <string>

extern "C" void *allocate(size_t bytes) {
    void *object = operator new(bytes);
    void *aligned = operator new(bytes, std::align_val_t{256});
    if (reinterpret_cast<size_t>(aligned) % 256) std::abort();
    operator delete(aligned, std::align_val_t{256});
    std::string text(bytes + 1000, 'x');
    if (operator new(size_t{1} << 62, std::nothrow)) std::abort();
    try {
        if (operator new(size_t{1} << 62)) std::abort();
    } catch (const std::bad_alloc &) {
        operator delete(object);
    }
    return std::malloc(bytes);
}
