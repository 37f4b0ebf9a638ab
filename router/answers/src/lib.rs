//! The form of an answer, its Warnings, and its refusal as a Status.

pub mod answer;
pub mod compression;
pub mod ground;
pub mod helm_record;
pub mod negotiate;
pub mod protobuf;
pub mod refusal;
pub mod stream_over;
pub mod warnings;
