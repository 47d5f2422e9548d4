"""`ripple batch`: a file of prompts becomes a file of responses, however often the job is killed."""
