/* Memory on nodes for C++ containers: std::pmr::memory_resource over the heap of libnearside. Header only, C++17; link with
 * -lnearside.
 *
 *     nearside::memory_resource on_node_1(1);
 *     std::pmr::vector<double> weights(1 << 20, &on_node_1);
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NEARSIDE_MEMORY_RESOURCE_HPP
#define NEARSIDE_MEMORY_RESOURCE_HPP

#include <memory_resource>
#include <nearside.h>
#include <new>
#include <stdexcept>
#include <string>

namespace nearside {

/* Objects on one place. Any thread may allocate and deallocate, also what another thread allocated. */
class memory_resource : public std::pmr::memory_resource {
public:
    /* On the node of the thread that allocates, or NS_HEAP_INTERLEAVED, or on a node. std::invalid_argument, with the
     * library's text, if there is no such node. */
    explicit memory_resource(int place = NS_HEAP_LOCAL) : place_(place) {
        if (place == NS_HEAP_LOCAL || place == NS_HEAP_INTERLEAVED) return;
        ns_error *error = nullptr;
        ns_facts facts;
        if (ns_node_facts(static_cast<unsigned>(place), &facts, sizeof facts, &error) < 0) {
            std::string text = ns_error_text(error);
            ns_error_free(error);
            throw std::invalid_argument(text);
        }
    }

    int place() const noexcept { return place_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *object = ns_heap_alloc(bytes, alignment, place_, nullptr);
        if (object == nullptr) throw std::bad_alloc();
        return object;
    }

    void do_deallocate(void *object, std::size_t, std::size_t) override { ns_heap_free(object); }

    /* Containers with equal resources exchange their memory, which must not change its place. */
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->place_ == place_;
    }

    int place_;
};

} // namespace nearside

#endif
