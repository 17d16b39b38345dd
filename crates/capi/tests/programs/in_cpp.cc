// The header in C++.
#include <iostream>
#include <nearside.h>

int main() {
    ns_set *cpus = nullptr;
    int result = ns_cpus("all", &cpus, nullptr);
    ns_set_free(cpus);
    std::cout << result << std::endl;
}
