// SPDX-License-Identifier: GPL-2.0
/*
 * Splits a huge page in the NUMA hint fault of another node, so that the kernel's balancing can
 * place its parts one by one: the patch of Gachod's study of Linux's NUMA balancing (2024), for an
 * unchanged kernel. For research: it replaces functions of the kernel while it runs.
 *
 * Parameters, all off at first, can be changed in /sys/module/nearside_thp/parameters:
 *   split    off; last: if the fault before was of another node; page: if the page is on another node
 *   reapply  the parts fault again at their next access, but for the one that faulted
 *   reset    the parts move in their next hint fault, whatever the kernel knows of them
 *   migrate  the part that faulted moves at once
 * Counters are in the same folder. The tracepoint nearside:thp_split tells each split.
 *
 * The module cannot be unloaded: a fault may be in it at any time.
 */
#include <linux/mm.h>
#include <linux/kprobes.h>
#include <linux/migrate.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/numa_balancing.h>
#include <linux/string.h>
#include <linux/vmstat.h>

#define CREATE_TRACE_POINTS
#include "thp_split_event.h"

enum { SPLIT_OFF, SPLIT_LAST, SPLIT_PAGE };
static const char *const triggers[] = { "off", "last", "page" };
static int split = SPLIT_OFF;

static int set_split(const char *value, const struct kernel_param *param)
{
	int trigger = sysfs_match_string(triggers, value);

	if (trigger < 0)
		return trigger;
	WRITE_ONCE(split, trigger);
	return 0;
}

static int get_split(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", triggers[READ_ONCE(split)]);
}

static const struct kernel_param_ops split_ops = { .set = set_split, .get = get_split };
module_param_cb(split, &split_ops, NULL, 0644);

static bool reapply, reset, migrate;
module_param(reapply, bool, 0644);
module_param(reset, bool, 0644);
module_param(migrate, bool, 0644);

static int get_count(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(param->arg));
}

static int refuse_count(const char *value, const struct kernel_param *param)
{
	return -EPERM;
}

static const struct kernel_param_ops count_ops = { .set = refuse_count, .get = get_count };
#define COUNTER(name)                \
	static atomic_long_t name;   \
	module_param_cb(name, &count_ops, &name, 0444)

COUNTER(splits);
COUNTER(failed_splits);
COUNTER(reapplied);
COUNTER(marked);
COUNTER(marked_moves);
COUNTER(migrated);

/*
 * The kernel's functions that are not exported to modules. Their types are the headers', so that
 * this does not compile for a kernel in which they have other parameters.
 */
static typeof(split_huge_page_to_list_to_order) *split_huge_page_at;
static typeof(change_prot_numa) *protect;
static typeof(folio_xchg_last_cpupid) *exchange_last_fault;
static typeof(__pte_offset_map_lock) *lock_pte;
static typeof(migrate_misplaced_folio_prepare) *prepare_move;
static typeof(migrate_misplaced_folio) *move;
/* before_decision() reads its second and fourth parameter from registers. */
static_assert(__same_type(should_numa_migrate_memory,
			  bool (struct task_struct *, struct folio *, int, int)));

/*
 * What a marked page has as its last fault: a CPU without a process. The kernel keeps 8 bits of
 * the process, and all ones mean none: a page that one process of 256 touched last on this CPU
 * looks marked too, and moves once without need. The CPU has to exist, as the kernel looks up
 * what runs on it.
 */
static int mark;

/*
 * Threads whose last split failed, by their process number: the kernel's own handler does their
 * next fault. A thread that another one has displaced tries once more.
 */
static struct task_struct *failed[64];

static struct task_struct **failed_of_this_thread(void)
{
	return &failed[current->pid % ARRAY_SIZE(failed)];
}

/* Takes the access to all parts but the one that faulted. */
static void protect_others(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long first = vmf->address & HPAGE_PMD_MASK;
	unsigned long start = max(first, vma->vm_start);
	unsigned long end = min(first + HPAGE_PMD_SIZE, vma->vm_end);
	unsigned long part = vmf->address & PAGE_MASK;
	unsigned long pages = 0;

	if (start < part)
		pages += protect(vma, start, part);
	if (part + PAGE_SIZE < end)
		pages += protect(vma, part + PAGE_SIZE, end);
	atomic_long_add(pages, &reapplied);
}

/* Moves the part that faulted. If it cannot move, it stays, and can be accessed. */
static void move_part(struct vm_fault *vmf, int node)
{
	struct vm_area_struct *vma = vmf->vma;
	struct folio *folio = NULL;
	spinlock_t *lock;
	pte_t *pte = lock_pte(vma->vm_mm, vmf->pmd, vmf->address, &lock);

	if (!pte)
		return;
	if (pte_present(ptep_get(pte)))
		folio = page_folio(pte_page(ptep_get(pte)));
	if (folio && (folio_nid(folio) == node || prepare_move(folio, vma, node)))
		folio = NULL;
	pte_unmap_unlock(pte, lock);
	if (folio && !move(folio, vma, node))
		atomic_long_inc(&migrated);
}

/* In the place of do_huge_pmd_numa_page, for a page that is to be split. The access is tried again then. */
static vm_fault_t split_in_fault(struct vm_fault *vmf)
{
	int cpu_node = numa_node_id(), page_node, error;
	struct folio *folio;
	spinlock_t *lock;
	struct page *page;

	lock = pmd_lock(vmf->vma->vm_mm, vmf->pmd);
	if (!pmd_same(*vmf->pmd, vmf->orig_pmd)) {
		spin_unlock(lock);
		return 0;
	}
	page = pmd_page(vmf->orig_pmd);
	folio = page_folio(page);
	page_node = folio_nid(folio);
	folio_get(folio);
	spin_unlock(lock);

	count_vm_numa_event(NUMA_HINT_FAULTS);
	if (page_node == cpu_node)
		count_vm_numa_event(NUMA_HINT_FAULTS_LOCAL);

	folio_lock(folio);
	error = split_huge_page_at(page, NULL, 0);
	if (!error && READ_ONCE(reset)) {
		int i;

		for (i = 0; i < HPAGE_PMD_NR; i++)
			exchange_last_fault(page_folio(page + i), mark);
		atomic_long_add(HPAGE_PMD_NR, &marked);
	}
	folio_unlock(folio);
	folio_put(folio);
	trace_thp_split(vmf->address, page_node, cpu_node, error);
	if (error) {
		atomic_long_inc(&failed_splits);
		WRITE_ONCE(*failed_of_this_thread(), current);
		return 0;
	}
	atomic_long_inc(&splits);
	if (READ_ONCE(reapply))
		protect_others(vmf);
	if (READ_ONCE(migrate))
		move_part(vmf, cpu_node);
	return 0;
}

/* Reads the page without its lock: split_in_fault checks again whether it is still there. */
static int before_huge_fault(struct kprobe *probe, struct pt_regs *regs)
{
	struct vm_fault *vmf = (struct vm_fault *)regs->di;
	struct folio *folio = page_folio(pmd_page(vmf->orig_pmd));
	int last;

	if (READ_ONCE(*failed_of_this_thread()) == current) {
		WRITE_ONCE(*failed_of_this_thread(), NULL);
		return 0;
	}
	/* Not pages of files, such as those of shared libraries. */
	if (!vma_is_anonymous(vmf->vma))
		return 0;
	switch (READ_ONCE(split)) {
	case SPLIT_LAST:
		last = folio_last_cpupid(folio);
		if (cpupid_cpu_unset(last) || cpupid_to_nid(last) == numa_node_id())
			return 0;
		break;
	case SPLIT_PAGE:
		if (folio_nid(folio) == numa_node_id())
			return 0;
		break;
	default:
		return 0;
	}
	instruction_pointer_set(regs, (unsigned long)split_in_fault);
	return 1;
}

static bool __used yes(void)
{
	return true;
}

/* Lets marked pages move. */
static int before_decision(struct kprobe *probe, struct pt_regs *regs)
{
	struct folio *folio = (struct folio *)regs->si;

	if (!READ_ONCE(reset) || folio_last_cpupid(folio) != mark)
		return 0;
	exchange_last_fault(folio, cpu_pid_to_cpupid(regs->cx, current->pid));
	atomic_long_inc(&marked_moves);
	instruction_pointer_set(regs, (unsigned long)yes);
	return 1;
}

/* With it, a probe may make its function go on elsewhere: the kernel refuses others that would. */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe huge_fault = {
	.symbol_name = "do_huge_pmd_numa_page",
	.pre_handler = before_huge_fault,
	.post_handler = after,
};
static struct kprobe decision = {
	.symbol_name = "should_numa_migrate_memory",
	.pre_handler = before_decision,
	.post_handler = after,
};

/* The address of a function of the kernel, or NULL. */
static void *find(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	void *address;

	if (register_kprobe(&probe))
		return NULL;
	address = probe.addr;
	unregister_kprobe(&probe);
	return address;
}

static const struct {
	const char *name;
	void **function;
} needed[] = {
	{ "split_huge_page_to_list_to_order", (void **)&split_huge_page_at },
	{ "change_prot_numa", (void **)&protect },
	{ "folio_xchg_last_cpupid", (void **)&exchange_last_fault },
	{ "__pte_offset_map_lock", (void **)&lock_pte },
	{ "migrate_misplaced_folio_prepare", (void **)&prepare_move },
	{ "migrate_misplaced_folio", (void **)&move },
};

static int __init start(void)
{
	int error, i;

	/* The address of a probe is behind the mark that indirect calls have to arrive at. */
	if (IS_ENABLED(CONFIG_X86_KERNEL_IBT) && cpu_feature_enabled(X86_FEATURE_IBT)) {
		pr_err("nearside_thp: boot with ibt=off: it calls functions that are not exported\n");
		return -EOPNOTSUPP;
	}
	for (i = 0; i < ARRAY_SIZE(needed); i++) {
		*needed[i].function = find(needed[i].name);
		if (!*needed[i].function) {
			pr_err("nearside_thp: this kernel has no function %s\n", needed[i].name);
			return -ENOENT;
		}
	}
	mark = cpu_pid_to_cpupid(cpumask_first(cpu_possible_mask), LAST__PID_MASK);
	/* This one first: if the other fails, nothing that sleeps has run, and this can go. */
	error = register_kprobe(&decision);
	if (error) {
		pr_err("nearside_thp: cannot replace %s: %d\n", decision.symbol_name, error);
		return error;
	}
	error = register_kprobe(&huge_fault);
	if (error) {
		pr_err("nearside_thp: cannot replace %s: %d\n", huge_fault.symbol_name, error);
		unregister_kprobe(&decision);
	}
	return error;
}
module_init(start);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Splits huge pages in NUMA hint faults, for research");
