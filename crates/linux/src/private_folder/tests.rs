use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

const OTHER: u32 = 12_345;

fn place(modes: &[(&str, u32)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, mode) in modes {
        fs::create_dir(place.path().join(name)).unwrap();
        fs::set_permissions(place.path().join(name), Permissions::from_mode(*mode)).unwrap();
    }
    place
}

fn refusal<T: std::fmt::Debug>(tried: Result<T, PrivateFolderError>) -> String {
    machine::chain(&tried.unwrap_err())
}

#[test]
fn parents_that_others_may_write_to_are_refused_unless_they_are_sticky() {
    let place = place(&[("all", 0o777), ("all/own", 0o700), ("group", 0o770), ("sticky", 0o1777)]);
    let at = |name: &str| place.path().join(name);
    let open = |name: &str, trust| PrivateFolder::open(&at(name), trust);
    let all = refusal(open("all/own", Trust::Groups));
    let (own, parent, owner) = (at("all/own"), at("all"), geteuid().as_raw());
    assert_eq!(
        all,
        format!(
            "{} is not safe from other users: {parent} (owner {owner}, mode 0777) may be written to by others: \
             chmod o-w {parent}, or choose another folder",
            own.display(),
            parent = parent.display()
        )
    );
    assert!(refusal(open("group", Trust::Owners)).contains("(owner "));
    assert!(open("group", Trust::Groups).is_ok());
    assert!(open("sticky", Trust::Owners).is_ok());
    assert!(PrivateFolder::create(&at("sticky/own"), 0o700).is_ok());
    // A folder for secrets is its owner's alone, sticky or not.
    assert!(refusal(PrivateFolder::create(&at("sticky"), 0o700)).contains("chmod go-w"));
    assert!(refusal(PrivateFolder::create(&at("none/below"), 0o700)).starts_with("cannot open the folder "));
}

#[test]
fn what_belongs_to_another_user_is_refused() {
    if !geteuid().is_root() {
        return test_tools::skipped("only root can give files to another user");
    }
    let place = place(&[("theirs", 0o755), ("theirs/own", 0o755), ("sticky", 0o1777)]);
    let at = |name: &str| place.path().join(name);
    chown(at("theirs"), Some(OTHER), None).unwrap();
    let told = refusal(PrivateFolder::open(&at("theirs/own"), Trust::Groups));
    assert!(told.contains("theirs (owner 12345, mode 0755) belongs to another user: choose "), "{told}");
    // Their link in a folder that all users may write to, and ours.
    symlink(at("sticky"), at("sticky/link")).unwrap();
    assert!(PrivateFolder::open(&at("sticky/link"), Trust::Owners).is_ok());
    std::os::unix::fs::lchown(at("sticky/link"), Some(OTHER), None).unwrap();
    let told = refusal(PrivateFolder::open(&at("sticky/link"), Trust::Owners));
    assert!(told.contains("is a symbolic link of another user"), "{told}");
    // Whether or not fs.protected_regular makes the kernel refuse to create over it.
    fs::write(at("sticky/file"), "").unwrap();
    chown(at("sticky/file"), Some(OTHER), None).unwrap();
    let told = refusal(PrivateFolder::open(&at("sticky"), Trust::Owners).unwrap().file("file", 0o600));
    assert!(told.contains("belongs to another user: remove it"), "{told}");
}

#[test]
fn links_on_the_way_are_checked_like_any_other_way() {
    let place = place(&[("a", 0o755), ("a/b", 0o755), ("all", 0o777), ("all/c", 0o755)]);
    let at = |name: &str| place.path().join(name);
    symlink("a/../a", at("relative")).unwrap();
    symlink(at("all/c"), at("bad")).unwrap();
    symlink("round", at("round")).unwrap();
    let folder = PrivateFolder::open(&at("relative/b"), Trust::Owners).unwrap();
    folder.file("x", 0o600).unwrap();
    assert!(at("a/b/x").exists());
    assert!(refusal(PrivateFolder::open(&at("bad"), Trust::Owners)).contains("mode 0777"));
    assert!(refusal(PrivateFolder::open(&at("round"), Trust::Owners)).contains("symbolic links"));
    assert!(refusal(PrivateFolder::create(&at("relative"), 0o700)).starts_with("cannot use the folder "));
}

#[test]
fn a_folder_that_is_exchanged_afterwards_is_not_used() {
    let place = place(&[("own", 0o755), ("trap", 0o755)]);
    let at = |name: &str| place.path().join(name);
    let folder = PrivateFolder::create(&at("own"), 0o755).unwrap();
    fs::rename(at("own"), at("before")).unwrap();
    symlink(at("trap"), at("own")).unwrap();
    let mut file = folder.file("journal", 0o600).unwrap();
    file.write_all(b"x").unwrap();
    assert!(folder.has("journal", &file) && at("before/journal").exists());
    assert_eq!((folder.names().unwrap(), fs::read_dir(at("trap")).unwrap().count()), (vec!["journal".into()], 0));
    folder.rename("journal", "kept").unwrap();
    assert!(!folder.has("journal", &file) && folder.has("kept", &file));
    folder.remove("kept").unwrap();
    assert!(folder.names().unwrap().is_empty());
}

/// The mode is exact from the first moment, and a link in the place of the socket is not followed.
#[test]
fn a_socket_has_its_mode_and_owner() {
    let place = place(&[("sticky", 0o1777)]);
    let at = |name: &str| place.path().join("sticky").join(name);
    let folder = PrivateFolder::open(&place.path().join("sticky"), Trust::Owners).unwrap();
    let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    let owner = if geteuid().is_root() { (OTHER, OTHER) } else { own };
    let listener = folder.listen("socket", 0o660, owner).unwrap();
    let there = fs::symlink_metadata(at("socket")).unwrap();
    assert_eq!((there.mode() & 0o777, there.uid(), there.gid()), (0o660, owner.0, owner.1));
    let _client = std::os::unix::net::UnixStream::connect(at("socket")).unwrap();
    listener.accept().unwrap();
    fs::write(at("secret"), "").unwrap();
    fs::set_permissions(at("secret"), Permissions::from_mode(0o600)).unwrap();
    symlink(at("secret"), at("planted")).unwrap();
    assert!(refusal(folder.listen("planted", 0o660, owner)).contains("Address already in use"));
    let secret = fs::metadata(at("secret")).unwrap();
    assert_eq!((secret.mode() & 0o777, secret.uid()), (0o600, own.0));
    assert_eq!(folder.kind("planted").unwrap(), Some(FileType::Symlink));
}

#[test]
fn a_file_is_replaced_as_a_whole_and_no_link_in_its_place_is_followed() {
    let place = place(&[("full", 0o755), ("full/.metrics-new", 0o755)]);
    let at = |name: &str| place.path().join(name);
    let folder = PrivateFolder::open(place.path(), Trust::Groups).unwrap();
    fs::write(at("secret"), "secret").unwrap();
    symlink(at("secret"), at("metrics")).unwrap();
    symlink(at("secret"), at(".metrics-new")).unwrap();
    for text in ["first", "second"] {
        folder.replace("metrics", 0o644, text.as_bytes()).unwrap();
        let there = fs::symlink_metadata(at("metrics")).unwrap();
        assert!(there.is_file() && there.mode() & 0o7777 == 0o644);
        assert_eq!(fs::read_to_string(at("metrics")).unwrap(), text);
    }
    assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
    assert_eq!(folder.names().unwrap(), ["full", "metrics", "secret"]);
    let full = PrivateFolder::open(&at("full"), Trust::Groups).unwrap();
    assert!(refusal(full.replace("metrics", 0o644, b"")).contains("File exists"));
    assert!(refusal(folder.replace("../metrics", 0o644, b"")).contains("Invalid argument"));
}

#[test]
fn a_file_that_is_only_read_is_one_that_others_cannot_change() {
    let place = place(&[("all", 0o777), ("sticky", 0o1777)]);
    let at = |name: &str| place.path().join(name);
    let mode = |name: &str, mode| {
        fs::write(at(name), "text").unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    };
    let open = |name: &str, trust| PrivateFolder::existing_file(&at(name), trust);
    mode("sticky/file", 0o664);
    assert_eq!(io::read_to_string(open("sticky/file", Trust::Groups).unwrap()).unwrap(), "text");
    assert!(refusal(open("sticky/file", Trust::Owners)).contains("chmod go-w"));
    mode("sticky/file", 0o1606);
    let told = refusal(open("sticky/file", Trust::Groups));
    assert!(told.contains("file (owner") && told.ends_with("or choose another file"), "{told}");
    mode("all/file", 0o600);
    assert!(refusal(open("all/file", Trust::Groups)).contains("mode 0777"));
    symlink("sticky/file", at("link")).unwrap();
    assert!(refusal(open("link", Trust::Groups)).contains("sticky/file"));
    mode("sticky/file", 0o600);
    assert_eq!(io::read_to_string(open("link", Trust::Groups).unwrap()).unwrap(), "text");
    symlink(at("all/file"), at("to all")).unwrap();
    assert!(refusal(open("to all", Trust::Groups)).contains("mode 0777"));
    symlink("circle", at("circle")).unwrap();
    assert!(refusal(open("circle", Trust::Groups)).starts_with("cannot open "));
    assert!(refusal(PrivateFolder::existing_file(Path::new("/dev/zero"), Trust::Groups)).contains("not a regular"));
    assert!(refusal(open("none", Trust::Groups)).contains("no such file"));
    if geteuid().is_root() {
        symlink("file", at("sticky/their link")).unwrap();
        std::os::unix::fs::lchown(at("sticky/their link"), Some(OTHER), None).unwrap();
        assert!(refusal(open("sticky/their link", Trust::Groups)).contains("another user's symbolic link"));
        mode("theirs", 0o644);
        chown(at("theirs"), Some(OTHER), None).unwrap();
        assert!(refusal(open("theirs", Trust::Groups)).contains("belongs to another user"));
    }
}

#[test]
fn files_are_regular_ones_of_ones_own_with_their_mode() {
    let place = place(&[]);
    let at = |name: &str| place.path().join(name);
    let folder = PrivateFolder::open(place.path(), Trust::Owners).unwrap();
    for mode in [0o600, 0o640, 0o666] {
        let file = folder.file("file", mode).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, mode);
    }
    let fifo = rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0);
    fifo.unwrap();
    assert!(refusal(folder.file("pipe", 0o600)).contains("is not a regular file: remove it, or choose another"));
    symlink(at("file"), at("link")).unwrap();
    assert!(refusal(folder.file("link", 0o600)).starts_with("cannot open "));
    fs::hard_link(at("file"), at("again")).unwrap();
    assert!(refusal(folder.file("again", 0o600)).contains("hard links"));
    for name in ["../file", "a/b", "..", "", "/etc/passwd"] {
        assert!(refusal(folder.file(name, 0o600)).contains("Invalid argument"), "{name}");
    }
}
