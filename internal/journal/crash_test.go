package journal_test

const childDir = "KERN_JOURNAL_CHILD"

func child(string) {}
