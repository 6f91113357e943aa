"""Labs: code on real tensors and real ranks, called from the notebooks and runnable on its own."""
