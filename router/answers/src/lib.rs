//! Forms of answers (encoding, compression, headers), Warnings, and refusals as Statuses.

pub mod answer;
pub mod compression;
pub mod ground;
pub mod helm_record;
pub mod negotiate;
pub mod protobuf;
pub mod refusal;
pub mod termination_reason;
pub mod warnings;
