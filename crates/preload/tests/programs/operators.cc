// Every form of operator new, once, each with its own size.
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

template <int bytes> struct Plain {
    char content[bytes];
};
struct alignas(128) Aligned {
    char content[1280];
};
struct Counted {
    ~Counted() { asm volatile("" ::: "memory"); }
    char content[100];
};

static void print(const char *name, void *object, size_t bytes) { std::printf("object %s %p %zu\n", name, object, bytes); }

__attribute__((noinline)) static Plain<1501> *site() {
    auto *object = new Plain<1501>;
    asm volatile("" ::: "memory");
    return object;
}

int main() {
    auto *plain = site();
    print("plain", plain, 1501);
    delete plain;
    auto *array = new Plain<10>[153];
    print("array", array, 1530);
    delete[] array;
    auto *aligned = new Aligned;
    print("aligned", aligned, 1280);
    delete aligned;
    auto *aligned_array = new Aligned[2];
    print("aligned_array", aligned_array, 2560);
    delete[] aligned_array;
    auto *no_throw = new (std::nothrow) Plain<1502>;
    print("nothrow", no_throw, 1502);
    operator delete(no_throw, std::nothrow);
    void *sized = operator new(1503);
    print("sized", sized, 1503);
    operator delete(sized, size_t{1503});
    auto *counted = new Counted[20];
    print("counted", reinterpret_cast<char *>(counted) - sizeof(size_t), 2000 + sizeof(size_t));
    delete[] counted;
    try {
        std::vector<char> too_large(size_t{1} << 62);
        return 1;
    } catch (const std::bad_alloc &) {
        std::puts("caught");
    }
    return 0;
}
