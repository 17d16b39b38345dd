//! Objects of compiled programs, exactly.

use crate::support::{Program, Told};
use trace::What;

#[test]
fn every_way_to_an_object_is_reported_exactly() {
    for flags in [&["-O0", "-fno-omit-frame-pointer"][..], &["-O2", "-fomit-frame-pointer"]] {
        let program = Program::new("objects.c", flags);
        let told = program.run(&[]).succeeded();
        assert_eq!((told.losses.lost, told.losses.malformed), (0, 0));
        let printed = told.printed();
        for name in ["malloc", "calloc", "aligned_alloc", "memalign", "posix_memalign", "valloc", "pvalloc"] {
            let object = &printed[name];
            assert!(told.life(object.address).contains("AF"), "{name}: {}", told.life(object.address));
            assert!(told.objects(object.address).iter().any(|(bytes, _)| *bytes == object.bytes), "{name}");
        }
        let stack = told.objects(printed["malloc"].address)[0].1;
        let functions: Vec<String> =
            told.stacks.chain(stack).iter().take(3).map(|&address| program.function(&told, address)).collect();
        assert_eq!(functions, ["inner", "outer", "main"]);
        reallocated(&told);
        mapped(&told);
    }
}

/// Claim C8: the old instance ends, a new one begins. A failed call records nothing.
fn reallocated(told: &Told) {
    let printed = told.printed();
    let [new, moved, smaller] = ["realloc_new", "realloc_moved", "realloc_in_place"].map(|name| &printed[name]);
    assert!(new.address != moved.address && told.life(new.address).contains("AF"));
    let lives = [moved, smaller].map(|object| told.life(object.address));
    assert!(lives.iter().all(|life| !life.contains("AA")), "each is recorded once: {lives:?}");
    if moved.address == smaller.address {
        assert!(lives[0].contains("ARF"), "{lives:?}");
    } else {
        assert!(lives[0].contains("AF") && lives[1].contains("AF"), "{lives:?}");
    }
    let is_resized = |what: &What| matches!(what, What::Resized { bytes: 900_000, .. });
    let resized = told.events.iter().any(|event| is_resized(&event.what));
    assert_eq!(resized, moved.address == smaller.address);
    assert!(told.objects(moved.address).iter().any(|(bytes, _)| *bytes == 1_000_000));
}

fn mapped(told: &Told) {
    let printed = told.printed();
    let [mapped, remapped, file] = ["mmap", "mremap", "file"].map(|name| &printed[name]);
    assert!(told.life(mapped.address).contains("MAU"), "{}", told.life(mapped.address));
    assert!(told.life(remapped.address).contains("MAU"), "{}", told.life(remapped.address));
    assert_eq!(told.objects(remapped.address).last().map(|(bytes, _)| *bytes), Some(64 << 20));
    let moved = What::Remapped { old: mapped.address, old_bytes: 1 << 20, start: remapped.address, bytes: 64 << 20 };
    assert!(remapped.address == mapped.address || told.events.iter().any(|event| event.what == moved));
    assert!(told.life(file.address).ends_with("MAU"), "{}", told.life(file.address));
    assert!(told.events.iter().any(|event| matches!(&event.what,
        What::Mapped { start, bytes: 8192, offset: 4096, name, file: None, executable: false }
            if *start == file.address && name.ends_with("/program"))));
}
