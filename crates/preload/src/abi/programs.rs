//! Functions that execute programs: exec(3) and posix_spawn(3). A program that this process executes stays on the guest, even if it gets
//! another environment, and keeps the sockets that are open across exec.

use super::next;
use crate::attach;
use crate::inheritance::{self, INHERITANCE_VARIABLE, Passed};
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::{CStr, CString};

/// The environment of a new program. It has the texts to which `pointers` refers.
struct Environment {
    _texts: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|byte| *byte == b'=').next().unwrap_or(entry)
}

impl Environment {
    /// Returns `from` with the variables that this library needs, and the description of the sockets that the program gets.
    unsafe fn new(from: *const *mut c_char, passed: Passed) -> Self {
        let mut given: Vec<*mut c_char> = Vec::new();
        let mut at = from;
        while !at.is_null() && !unsafe { *at }.is_null() {
            given.push(unsafe { *at });
            at = unsafe { at.add(1) };
        }
        let name = |entry: &*mut c_char| unsafe { name_of(CStr::from_ptr(*entry).to_bytes()) };
        let mut texts: Vec<CString> = Vec::new();
        for own in attach::environment() {
            let own_name = name_of(own.as_bytes());
            match given.iter().position(|entry| name(entry) == own_name) {
                None => texts.push(own.clone()),
                Some(place) if own_name == b"LD_PRELOAD" => {
                    let given_text = unsafe { CStr::from_ptr(given[place]) }.to_bytes();
                    if !given_text.ends_with(&own.as_bytes()[own_name.len() + 1..]) {
                        let others = &given_text[own_name.len()..];
                        let joined = [own.as_bytes(), b":", others.strip_prefix(b"=").unwrap_or(others)].concat();
                        given.remove(place);
                        texts.extend(CString::new(joined));
                    }
                }
                Some(_) => {}
            }
        }
        given.retain(|entry| name(entry) != INHERITANCE_VARIABLE.as_bytes());
        if let Some(description) = inheritance::describe(passed) {
            texts.extend(CString::new(format!("{INHERITANCE_VARIABLE}={description}")));
        }
        let own = texts.iter().map(|text| text.as_ptr().cast_mut());
        let pointers = given.into_iter().chain(own).chain([std::ptr::null_mut()]).collect();
        Self { _texts: texts, pointers }
    }

    fn pointer(&self) -> *const *mut c_char {
        self.pointers.as_ptr()
    }
}

unsafe fn own_environment() -> *const *mut c_char {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    unsafe { environ }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    let environment = unsafe { Environment::new(variables, Passed::OpenAcrossExec) };
    unsafe { next::execve(path, arguments, environment.pointer()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: *const *mut c_char) -> c_int {
    unsafe { execve(path, arguments, own_environment()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    let environment = unsafe { Environment::new(variables, Passed::OpenAcrossExec) };
    unsafe { next::execvpe(file, arguments, environment.pointer()) }
}

/// The arguments of a function with a variable number of arguments, after the first: those that were passed in registers, and behind
/// them those on the stack. The last argument that belongs to the list is null.
struct Variable {
    in_registers: *const *mut c_char,
    registers: usize,
    on_stack: *const *mut c_char,
}

impl Variable {
    unsafe fn at(&self, place: usize) -> *mut c_char {
        match place.checked_sub(self.registers) {
            None => unsafe { *self.in_registers.add(place) },
            Some(place) => unsafe { *self.on_stack.add(place) },
        }
    }

    /// Returns the list of arguments with the null pointer at its end.
    unsafe fn list(&self) -> Vec<*mut c_char> {
        let mut list = Vec::new();
        loop {
            let next = unsafe { self.at(list.len()) };
            list.push(next);
            if next.is_null() {
                return list;
            }
        }
    }
}

/// Defines functions with a variable number of arguments. Each of them passes its first argument, the place where it has saved the
/// registers with the next arguments, and the place of the others on the stack to a function of Rust.
macro_rules! variadic {
    ($($name:ident => $function:ident;)*) => {
        $(
            #[cfg_attr(siga_preload_library, unsafe(no_mangle))]
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 48]",
                    "call {function}",
                    "add rsp, 40",
                    "ret",
                    function = sym $function,
                )
            }

            #[cfg_attr(siga_preload_library, unsafe(no_mangle))]
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "stp x1, x2, [sp, #16]",
                    "stp x3, x4, [sp, #32]",
                    "stp x5, x6, [sp, #48]",
                    "str x7, [sp, #64]",
                    "add x1, sp, #16",
                    "add x2, sp, #80",
                    "bl {function}",
                    "ldp x29, x30, [sp], #80",
                    "ret",
                    function = sym $function,
                )
            }
        )*
    };
}

/// Number of the registers that the functions above save.
const REGISTERS: usize = if cfg!(target_arch = "x86_64") { 5 } else { 7 };

variadic! {
    execl => execute_list;
    execlp => execute_list_in_path;
    execle => execute_list_with_environment;
}

unsafe extern "C" fn execute_list(
    path: *const c_char,
    in_registers: *const *mut c_char,
    on_stack: *const *mut c_char,
) -> c_int {
    let arguments = unsafe { Variable { in_registers, registers: REGISTERS, on_stack }.list() };
    unsafe { execv(path, arguments.as_ptr()) }
}

unsafe extern "C" fn execute_list_in_path(
    file: *const c_char,
    in_registers: *const *mut c_char,
    on_stack: *const *mut c_char,
) -> c_int {
    let arguments = unsafe { Variable { in_registers, registers: REGISTERS, on_stack }.list() };
    unsafe { execvp(file, arguments.as_ptr()) }
}

/// The environment follows the null pointer at the end of the arguments.
unsafe extern "C" fn execute_list_with_environment(
    path: *const c_char,
    in_registers: *const *mut c_char,
    on_stack: *const *mut c_char,
) -> c_int {
    let variable = Variable { in_registers, registers: REGISTERS, on_stack };
    let arguments = unsafe { variable.list() };
    let variables = unsafe { variable.at(arguments.len()) }.cast::<*mut c_char>();
    unsafe { execve(path, arguments.as_ptr(), variables) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *mut c_char) -> c_int {
    unsafe { execvpe(file, arguments, own_environment()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fexecve(
    number: c_int,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    let environment = unsafe { Environment::new(variables, Passed::OpenAcrossExec) };
    unsafe { next::fexecve(number, arguments, environment.pointer()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    let environment = unsafe { Environment::new(variables, passed(actions)) };
    unsafe { next::posix_spawn(child, path, actions, attributes, arguments, environment.pointer()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    arguments: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    let environment = unsafe { Environment::new(variables, passed(actions)) };
    unsafe { next::posix_spawnp(child, file, actions, attributes, arguments, environment.pointer()) }
}

fn passed(actions: *const posix_spawn_file_actions_t) -> Passed {
    if actions.is_null() { Passed::OpenAcrossExec } else { Passed::Any }
}
