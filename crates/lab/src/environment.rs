//! stub until merge
use serde::{Deserialize, Serialize};
/// stub
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {}
impl Environment {
    /// stub
    pub fn read() -> Self {
        Self {}
    }
}
