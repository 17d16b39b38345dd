//! `fork` while other threads allocate, and what misuse ends with.

use heap::{Place, allocate, free};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{fs, thread};

/// Runs this in a forked child and returns its wait status and what it wrote to standard error.
fn in_child(run: impl FnOnce()) -> (i32, String) {
    let mut ends = [0; 2];
    let mut status = 0;
    // SAFETY: the child only calls the heap and the system, as it may have been forked from one of several threads.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::dup2(ends[1], 2);
            libc::alarm(20); // A deadlock ends by this signal.
            run();
            libc::_exit(0);
        }
        assert!(child > 0);
        libc::close(ends[1]);
        let mut said = String::new();
        fs::File::from_raw_fd(ends[0]).read_to_string(&mut said).unwrap();
        libc::waitpid(child, &raw mut status, 0);
        (status, said)
    }
}

#[test]
fn a_child_goes_on_whatever_other_threads_did_at_the_fork() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // Threads that start and end, so that lists of all heaps change.
                    thread::spawn(|| {
                        let objects: Vec<_> =
                            (0..500).map(|number| allocate(number * 13, 16, Place::Local) as usize).collect();
                        // SAFETY: live objects.
                        objects.into_iter().for_each(|object| unsafe { free(object as *mut u8) });
                    })
                    .join()
                    .unwrap();
                }
            });
        }
        let before: Vec<_> = (0..1000).map(|number| allocate(number, 16, Place::Local)).collect();
        for _ in 0..100 {
            let (status, said) = in_child(|| {
                for (number, object) in before.iter().enumerate() {
                    // SAFETY: live objects of the parent's thread, which is the child's.
                    unsafe { free(*object) };
                    assert!(!allocate(number * 17, 16, Place::Local).is_null());
                }
            });
            assert_eq!((status, said.as_str()), (0, ""));
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn misuse_ends_with_one_sentence() {
    let object = allocate(100, 16, Place::Local);
    let large = allocate(300 << 10, 16, Place::Local);
    let huge = allocate(2 << 20, 16, Place::Local);
    let other = thread::spawn(|| allocate(100, 16, Place::Local) as usize).join().unwrap() as *mut u8;
    let local = 5_u64;
    let twice = |object: *mut u8| {
        move || {
            // SAFETY: none: this is the misuse that must be noticed. The same below.
            unsafe {
                free(object);
                free(object);
            }
        }
    };
    let of = |address: usize| {
        move || {
            // SAFETY: as above.
            unsafe { free(address as *mut u8) };
        }
    };
    let cases: [(&str, &dyn Fn()); 9] = [
        ("was freed before", &twice(object)),
        ("was freed before", &twice(other)),
        ("or was freed before", &twice(large)),
        ("or was freed before", &twice(huge)),
        ("was not allocated by this heap", &of(&raw const local as usize)),
        ("was not allocated by this heap", &of(64)),
        ("was not allocated by this heap", &of(usize::MAX - 15)),
        ("is inside an object", &of(object as usize + 16)),
        ("is inside an object", &of(huge as usize + 1)),
    ];
    for (expected, misuse) in cases {
        let (status, said) = in_child(misuse);
        assert_eq!(status & 0x7f, libc::SIGABRT, "{expected}: {said}");
        assert!(said.contains(expected) && said.ends_with(".\n") && said.lines().count() == 1, "{expected}: {said}");
    }
}
