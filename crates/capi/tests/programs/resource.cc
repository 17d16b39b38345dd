// Containers of the standard library on a memory resource. With the number of a node, prints where its pages are.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nearside-memory-resource.hpp>
#include <string>
#include <thread>
#include <vector>

static int failures;
#define CHECK(what) ((what) ? (void)0 : (void)(failures++, std::cout << #what << std::endl))

static void containers(nearside::memory_resource &resource) {
    std::pmr::map<int, std::pmr::string> map(&resource);
    for (int i = 0; i < 10000; i++) map[i * 7919 % 10007] = std::string(static_cast<std::size_t>(i % 300), 'a');
    for (int i = 0; i < 10000; i += 2) map.erase(i * 7919 % 10007);
    std::size_t bytes = 0;
    for (const auto &[key, text] : map) bytes += text.size();
    CHECK(map.size() == 5000 && bytes == 745000);
    CHECK(map.begin()->second.get_allocator().resource() == &resource);
    // Freed by another thread than allocated it.
    std::pmr::vector<std::pmr::vector<std::uint64_t>> rows(&resource);
    for (std::size_t i = 0; i < 500; i++) rows.emplace_back(i * 10, i);
    std::thread([&] {
        std::uint64_t sum = 0;
        for (const auto &row : rows) for (std::uint64_t value : row) sum += value;
        CHECK(sum == 415417500);
        rows.clear();
    }).join();
}

static void objects() {
    nearside::memory_resource local, interleaved(NS_HEAP_INTERLEAVED), again;
    for (std::size_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
        void *object = local.allocate(100, alignment);
        CHECK(reinterpret_cast<std::uintptr_t>(object) % alignment == 0);
        local.deallocate(object, 100, alignment);
    }
    CHECK(local.is_equal(again) && !local.is_equal(interleaved) && !local.is_equal(*std::pmr::new_delete_resource()));
    CHECK(local.place() == NS_HEAP_LOCAL);
    try {
        (void)local.allocate(SIZE_MAX / 2, 16);
        CHECK(false);
    } catch (const std::bad_alloc &) {
    }
    try {
        nearside::memory_resource nowhere(4000);
        CHECK(false);
    } catch (const std::invalid_argument &wrong) {
        CHECK(std::string(wrong.what()).find("4000") != std::string::npos);
    }
    containers(local);
    containers(interleaved);
}

static void where(int node) {
    nearside::memory_resource resource(node);
    std::pmr::vector<char> memory(8 << 20, 1, &resource);
    std::uint64_t pages[64];
    CHECK(ns_where(memory.data(), memory.size(), pages, 64, nullptr, nullptr) == 0);
    for (int other = 0; other < 64; other++)
        if (pages[other] > 0) std::cout << "node " << other << ": " << pages[other] << std::endl;
}

int main(int count, char **arguments) {
    objects();
    if (count > 1) where(std::atoi(arguments[1]));
    std::cout << failures << " failures" << std::endl;
}
