//! Names of functions and variables as their source has them, in bounded length.

use cpp_demangle::{BorrowedSymbol, DemangleOptions};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Maximum length of a demangled name, in bytes. Parts of a mangled name can refer to each other, so that it doubles with
/// every level: 200 bytes can stand for terabytes.
const MOST_BYTES: usize = 64 << 10;

/// Demangles a name. C names are left alone, although some are valid mangled names: `b` is `bool`. So are names that are
/// too long.
pub(crate) fn demangled(name: &str) -> Arc<str> {
    if !["_Z", "__Z", "_R"].iter().any(|beginning| name.starts_with(beginning)) {
        return name.into();
    }
    let mut text = Bounded(String::new());
    let written = match rustc_demangle::try_demangle(name) {
        Ok(rust) => write!(text, "{rust:#}").is_ok(),
        Err(_) => BorrowedSymbol::new(name.as_bytes())
            .is_ok_and(|symbol| symbol.structured_demangle(&mut text, &DemangleOptions::default()).is_ok()),
    };
    if written { text.0.into() } else { name.into() }
}

/// A text that fails to grow beyond its bound.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > MOST_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_stay_and_others_are_as_their_source_has_them() {
        for name in ["b", "a", "d", "St", "Pc", "main"] {
            assert_eq!(*demangled(name), *name);
        }
        assert_eq!(*demangled("_ZN4core4loadEv"), *"core::load()");
        assert_eq!(*demangled("_RNvC6_123foo3bar"), *"123foo::bar");
        assert_eq!(*demangled("_ZN3foo3bar17h05af221e174051e9E"), *"foo::bar");
    }

    /// `f<P<P<...>, P<...>>>`: each pair has the one before it twice, the second time as a reference to it.
    fn doubled(levels: usize) -> String {
        // Substitutions by their ends: S_ is `f`, S0_ `P`, S1_ `A`, S2_ `P<A, A>`.
        let mut inner = "1A".to_owned();
        for level in 0..levels {
            let pair = if level + 1 == levels { "1P" } else { "S0_" };
            let again = char::from_digit(level as u32 + 1, 36).unwrap().to_ascii_uppercase();
            inner = format!("{pair}I{inner}S{again}_E");
        }
        format!("_Z1fI{inner}EvT_")
    }

    #[test]
    fn names_that_double_with_every_level_stay_as_they_are() {
        let short = doubled(3);
        assert!(demangled(&short).contains("P<P<P<A, A>, P<A, A> >, P<P<A, A>, P<A, A> > >"), "{}", demangled(&short));
        let long = doubled(30);
        assert!(long.len() < 300 && *demangled(&long) == *long, "{}", demangled(&long).len());
    }
}
