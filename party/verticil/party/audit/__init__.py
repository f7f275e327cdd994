"""What a party can show of what it did: the audit log and the common sets of people."""
