//! Threads that free each other's memory, and end while others go on.

use heap::{Place, allocate, free, mapped_bytes};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// An object that may go to another thread. Each byte is the low byte of its size.
struct Object(*mut u8, usize);
// SAFETY: only its owner uses the memory.
unsafe impl Send for Object {}

impl Object {
    fn new(bytes: usize) -> Self {
        let object = allocate(bytes, 16, Place::Local);
        assert!(!object.is_null());
        // SAFETY: a new object of this size.
        unsafe { object.write_bytes(bytes as u8, bytes) };
        Self(object, bytes)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: a live object of this size.
        unsafe {
            assert!(std::slice::from_raw_parts(self.0, self.1).iter().all(|byte| *byte == self.1 as u8));
            free(self.0);
        }
    }
}

/// Sizes of all kinds of spans.
fn size(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let bits = (*seed >> 60) as u32 + 4;
    (*seed >> 33) as usize % (1 << bits) + 1
}

fn consume(objects: Receiver<Object>) {
    objects.into_iter().for_each(drop);
}

#[test]
fn threads_free_what_others_allocated() {
    thread::scope(|scope| {
        for seed in 0..4 {
            let (sender, receiver) = sync_channel(500);
            scope.spawn(move || {
                let mut seed = seed;
                (0..20_000).for_each(|_| sender.send(Object::new(size(&mut seed))).unwrap());
            });
            scope.spawn(move || consume(receiver));
        }
    });
}

#[test]
fn memory_of_ended_threads_is_adopted() {
    let mut seed = 7;
    let mut generation = || {
        let mut own = seed;
        seed += 1;
        // Each thread ends while its objects live; the next ones free them.
        thread::spawn(move || (0..3000).map(|_| Object::new(size(&mut own) % 4000 + 1)).collect::<Vec<_>>())
            .join()
            .unwrap()
    };
    let mut kept = generation();
    (0..20).for_each(|_| kept = generation());
    let before = mapped_bytes();
    (0..200).for_each(|_| kept = generation());
    let grown = mapped_bytes().saturating_sub(before);
    // Other tests run beside this one. Without adoption, each thread would map a segment of its own: 800 MiB.
    assert!(grown < 400 << 20, "{grown} bytes more are mapped");
    drop(kept);
}

#[test]
fn threads_end_while_others_free() {
    for round in 0..50 {
        let (sender, receiver) = sync_channel(10_000);
        let consumer = thread::spawn(move || consume(receiver));
        let producers: Vec<_> = (0..4)
            .map(|number| {
                let sender = sender.clone();
                let mut seed = round * 4 + number;
                thread::spawn(move || {
                    (0..500).for_each(|_| sender.send(Object::new(size(&mut seed) % 9000 + 1)).unwrap());
                })
            })
            .collect();
        drop(sender);
        for producer in producers {
            producer.join().unwrap();
        }
        consumer.join().unwrap();
    }
}
