/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms of memory: zeroed, aligned, apart from each other, small and large ones in one list. */
#include "unit/support/support.h"

#include "base/huge.h"

#include <stdint.h>
#include <string.h>

static void take(huge_room **rooms, size_t bytes, size_t room_bytes, uint8_t mark) {
    uint8_t *p = huge_take(rooms, bytes, room_bytes);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != 0) fail_msg("byte %zu of %zu is %d", i, bytes, p[i]);
    }
    memset(p, mark, bytes); /* whoever gets it again would see it */
}

static void test_rooms(void **state) {
    huge_room *rooms = NULL;
    (void)state;
    for (int i = 0; i < 20; i++) take(&rooms, (size_t)(100 + i * 37), 1000, (uint8_t)(i + 1));
    take(&rooms, 5000, 1000, 50);
    take(&rooms, (size_t)3 << 20, 1000, 51); /* more than a room */
    for (int i = 0; i < 9; i++) take(&rooms, (size_t)1 << 20, (size_t)5 << 20, (uint8_t)(60 + i));
    assert_true(huge_bytes(rooms) >= ((size_t)12 << 20) && huge_bytes(rooms) < ((size_t)12 << 20) + 40000);
    assert_null(huge_take(&rooms, SIZE_MAX - 3, 0));
    assert_null(huge_take(&rooms, SIZE_MAX / 2, 0));
    huge_free(rooms);
    huge_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rooms) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
