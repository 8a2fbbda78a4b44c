//! Dialogues and whole transfers, by topic.

mod transfer;
