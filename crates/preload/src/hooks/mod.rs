//! The functions that a program calls in the place of the C library's.
//!
//! `operator new` and `delete` are not among them: those of the C++ library call `malloc` and `free`, and are then one
//! frame of the call chain, which whoever names the site passes over. A definition here would come before a program's own
//! in its libraries, and would have to throw.

mod announced;
mod heap;
mod mapping;
mod threads;

/// Defines functions of the C ABI that add where they were called from to their arguments, and go on in Rust:
/// `name(arguments) => function, register of the stack pointer, register of the base pointer`. They leave no frame.
macro_rules! called_from {
    ($($(#[$attribute:meta])* $name:ident => $function:ident, $stack:literal, $base:literal;)*) => {$(
        $(#[$attribute])*
        /// # Safety
        ///
        /// As of the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                concat!("mov ", $stack, ", rsp"),
                concat!("mov ", $base, ", rbp"),
                "jmp {function}",
                function = sym $function,
            )
        }
    )*};
}

pub(crate) use called_from;
