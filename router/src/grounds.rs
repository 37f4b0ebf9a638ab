//! Which cluster a request means: the grounds in their order, what each says by the evidence that there is, and who
//! owns a name. Pure, so that tables can test it; `forward/meant.rs` goes through the grounds, `forward/evidence.rs`
//! finds the evidence.

mod evidence;
mod owner;

pub(crate) use self::evidence::{Evidence, Finding};
pub(crate) use self::owner::{AnswerOrigin, Meaning, NoOwner, choose_answer_origin, is_denial_told, owner};
