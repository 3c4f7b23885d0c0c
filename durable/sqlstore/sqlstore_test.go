package sqlstore

import "testing"

func TestANilOptionIsPassedOver(t *testing.T) {
	want, err := MigrationSQL(SQLite(), WithPrefix("a_"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := MigrationSQL(SQLite(), nil, WithPrefix("a_"), nil); err != nil || got != want {
		t.Errorf("MigrationSQL with nil options = %.80q, %v, want it as without them", got, err)
	}
}
