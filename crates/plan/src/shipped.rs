//! The plans and levels that the program ships, by name. The build script lists the files of `plans/` and `levels/`.

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));
