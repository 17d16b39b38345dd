//! Sequences of calls, by several threads, against a model of what an allocator promises: objects do not overlap, keep
//! their contents, are as large and aligned as asked for, and what is freed is given back. For property tests and the
//! fuzzer.

use crate::segment::SEGMENT_BYTES;
use crate::{Place, allocate, allocate_zeroed, borrowed_segments, free, mapped_bytes, reallocate, usable_size};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Threads that a sequence has.
pub const THREADS: usize = 4;
/// Live bytes beyond which a sequence gets no further objects.
const MOST_LIVE: usize = 64 << 20;
/// Address space, in bytes, that the segments of any number of sequences may keep, if at most [`MOST_LIVE`] are in use at a
/// time: 4 heaps for each of few places, each with some segments of its own.
const MOST_KEPT: usize = 2 << 30;

/// A call of a thread.
#[derive(Clone, Debug)]
pub enum Call {
    /// `malloc`, `aligned_alloc` or, zeroed, `calloc`.
    Allocate {
        /// Size.
        bytes: usize,
        /// A power of two.
        alignment: usize,
        /// Where it should be.
        place: Place,
        /// Whether its memory must be zeroed.
        zeroed: bool,
    },
    /// `free` of a live object, by its rank modulo their number: of any thread's.
    Free(usize),
    /// `realloc` of a live object to a size in bytes.
    Resize(usize, usize),
    /// The thread ends, and leaves its heaps to others. Its next call is that of a new thread. Not for the first thread,
    /// which is the caller.
    End,
}

/// What a thread does for the model, with addresses of objects.
enum Task {
    Allocate { bytes: usize, alignment: usize, place: Place, zeroed: bool },
    Free(usize),
    Resize { object: usize, bytes: usize, alignment: usize },
}

impl Task {
    /// Returns the address of the object; 0 if there is none.
    fn run(self) -> usize {
        match self {
            Self::Allocate { bytes, alignment, place, zeroed } => {
                (if zeroed { allocate_zeroed } else { allocate })(bytes, alignment, place).expose_provenance()
            }
            Self::Free(object) => {
                // SAFETY: a live object, which the model has forgotten.
                unsafe { free(core::ptr::with_exposed_provenance_mut(object)) };
                0
            }
            Self::Resize { object, bytes, alignment } => {
                let object = core::ptr::with_exposed_provenance_mut(object);
                // SAFETY: as above.
                unsafe { reallocate(object, bytes, alignment, Place::Local) }.expose_provenance()
            }
        }
    }
}

/// A thread that waits for tasks.
struct Worker {
    tasks: Sender<Task>,
    results: Receiver<usize>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> Self {
        let ((tasks, from), (to, results)) = (channel::<Task>(), channel());
        let thread = std::thread::spawn(move || {
            from.into_iter().map(Task::run).take_while(|&result| to.send(result).is_ok()).for_each(drop);
        });
        Self { tasks, results, thread }
    }

    fn end(self) {
        drop(self.tasks);
        self.thread.join().expect("a thread of the model has panicked");
    }
}

struct Object {
    bytes: usize,
    alignment: usize,
    /// The byte that fills it.
    fill: u8,
}

/// Live objects by address, and the threads that have made calls.
#[derive(Default)]
struct Model {
    objects: BTreeMap<usize, Object>,
    live: usize,
    workers: [Option<Worker>; THREADS],
}

/// Checks that all bytes of a live object are the same.
fn check(object: usize, bytes: usize, fill: u8) {
    // SAFETY: a live object of at least this size, which the model has filled, or whose memory is zeroed.
    let contents = unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(object), bytes) };
    assert!(contents.iter().all(|byte| *byte == fill), "contents changed");
}

impl Model {
    fn run(&mut self, thread: usize, task: Task) -> usize {
        if thread == 0 {
            return task.run();
        }
        let worker = self.workers[thread].get_or_insert_with(Worker::start);
        worker.tasks.send(task).expect("a thread of the model has panicked");
        worker.results.recv().expect("a thread of the model has panicked")
    }

    /// Adds an object, and fills it.
    fn add(&mut self, start: usize, object: Object) {
        let address = core::ptr::with_exposed_provenance_mut::<u8>(start);
        assert!(!address.is_null() && start.is_multiple_of(object.alignment), "{start:#x}, for {}", object.alignment);
        // SAFETY: a live object.
        let usable = unsafe { usable_size(address) };
        assert!(usable >= object.bytes);
        let before = self.objects.range(..start).next_back();
        assert!(before.is_none_or(|(other, of)| other + of.bytes <= start), "overlaps the object before");
        let after = self.objects.range(start..).next();
        assert!(after.is_none_or(|(other, _)| start + usable <= *other), "overlaps the object behind");
        // SAFETY: a live object of at least this size.
        unsafe { address.write_bytes(object.fill, object.bytes) };
        self.live += object.bytes;
        self.objects.insert(start, object);
    }

    /// Forgets a live object, whose contents must be as they were.
    fn take(&mut self, rank: usize) -> Option<(usize, Object)> {
        let start = *self.objects.keys().nth(rank.checked_rem(self.objects.len())?)?;
        let object = self.objects.remove(&start)?;
        check(start, object.bytes, object.fill);
        self.live -= object.bytes;
        Some((start, object))
    }

    fn call(&mut self, thread: usize, call: &Call, fill: u8) {
        match *call {
            Call::Allocate { bytes, alignment, place, zeroed } => {
                if self.live + bytes > MOST_LIVE {
                    return;
                }
                let start = self.run(thread, Task::Allocate { bytes, alignment, place, zeroed });
                if zeroed && start != 0 {
                    check(start, bytes, 0);
                }
                self.add(start, Object { bytes, alignment, fill });
            }
            Call::Free(rank) => {
                if let Some((start, _)) = self.take(rank) {
                    self.run(thread, Task::Free(start));
                }
            }
            Call::Resize(rank, bytes) => {
                if self.live + bytes > MOST_LIVE {
                    return;
                }
                if let Some((start, Object { bytes: old, alignment, fill: had })) = self.take(rank) {
                    let object = self.run(thread, Task::Resize { object: start, bytes, alignment });
                    assert!(object != 0, "no memory for {bytes} bytes");
                    check(object, old.min(bytes), had);
                    self.add(object, Object { bytes, alignment, fill });
                }
            }
            Call::End => self.workers[thread].take().into_iter().for_each(Worker::end),
        }
    }
}

/// Runs the calls one after the other, each by the thread of this number, and then frees all. Panics where a promise is
/// broken.
pub fn run(calls: impl IntoIterator<Item = (usize, Call)>) {
    let mut model = Model::default();
    for (number, (thread, call)) in calls.into_iter().enumerate() {
        model.call(thread % THREADS, &call, number as u8 | 1);
    }
    // The last objects are freed by another thread than most were allocated by.
    while let Some((start, _)) = model.take(0) {
        Task::Free(start).run();
    }
    model.workers.iter_mut().filter_map(Option::take).for_each(Worker::end);
}

/// Checks that the memory of all sequences so far has returned: objects with a mapping of their own are unmapped, and
/// segments wait for the next heaps. No other code of the process may use the heap meanwhile.
///
/// # Panics
///
/// If memory is left.
pub fn check_counts() {
    let mapped = mapped_bytes();
    assert!(mapped.is_multiple_of(SEGMENT_BYTES), "{mapped} bytes are left mapped");
    assert!(mapped <= MOST_KEPT, "{mapped} bytes are kept");
    assert!(borrowed_segments() * SEGMENT_BYTES <= mapped);
}
