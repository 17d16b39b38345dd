/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nearside

#if !defined(THP_SPLIT_EVENT_H) || defined(TRACE_HEADER_MULTI_READ)
#define THP_SPLIT_EVENT_H

#include <linux/tracepoint.h>

/* A huge page was split in a hint fault, or could not be. */
TRACE_EVENT(thp_split,
	TP_PROTO(unsigned long address, int page_node, int cpu_node, int error),
	TP_ARGS(address, page_node, cpu_node, error),
	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(int, page_node)
		__field(int, cpu_node)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->address = address;
		__entry->page_node = page_node;
		__entry->cpu_node = cpu_node;
		__entry->error = error;
	),
	TP_printk("address=%#lx page_node=%d cpu_node=%d error=%d",
		  __entry->address, __entry->page_node, __entry->cpu_node, __entry->error)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE thp_split_event
#include <trace/define_trace.h>
